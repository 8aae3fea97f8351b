"""Child processes of the bucket tests: `python child.py race|write|die URL ...`."""

import os
import signal
import sys
import zlib
from itertools import count
from unittest import mock

from tussock.statestore.buckets import open_bucket

OBJECT_BYTES = 3 << 20


def whole_object(number: int) -> bytes:
    """Bytes that show whether all of them are there."""
    body = number.to_bytes(4, "big") * (OBJECT_BYTES // 4)
    return zlib.crc32(body).to_bytes(4, "big") + body


def is_whole(data: bytes) -> bool:
    """Whether `data` is the result of a call of `whole_object`."""
    return len(data) == OBJECT_BYTES + 4 and zlib.crc32(data[4:]) == int.from_bytes(data[:4], "big")


def race(url: str, name: str, objects: int) -> None:
    """Wait for a line, then create all objects, and print the numbers of those that this process has won."""
    bucket = open_bucket(url)
    print("ready", flush=True)
    sys.stdin.readline()
    print(*[number for number in range(objects) if bucket.create(f"race/{number}", name.encode())], flush=True)


def write(url: str) -> None:
    """Put and create objects until killed, and print a line before each."""
    bucket = open_bucket(url)
    for number in count():
        print(number, flush=True)
        bucket.put("write/same", whole_object(number))
        bucket.create(f"write/{number}", whole_object(number))


def die(url: str, operation: str, call: str, kernel: str) -> None:
    """Write an object and be killed on entering the `call`-th function that changes files; print the calls if alive.

    An "old" kernel knows no files without a name.
    """
    if kernel == "old":
        os.O_TMPFILE = 0
    bucket = open_bucket(url)
    bucket.put("die/before", b"")  # makes the folder
    left = int(call)

    def mortal(function: str):  # type: ignore[no-untyped-def]
        real = getattr(os, function)

        def call(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return mock.patch(f"os.{function}", call)

    with mortal("writev"), mortal("fsync"), mortal("rename"), mortal("link"), mortal("unlink"):
        getattr(bucket, operation)("die/object", whole_object(1))
    print("survived", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["race", url, name, objects]:
            race(url, name, int(objects))
        case ["write", url]:
            write(url)
        case ["die", url, operation, call, kernel]:
            die(url, operation, call, kernel)
