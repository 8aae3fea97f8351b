"""A main script whose functions run in workers: what it imports and defines goes with them."""

import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 120
SCRIPT = '''
import os.path
import xml.dom.minidom
import zlib
from math import gcd
import sys

from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, connect

SALT = b"salt"
# No worker can have it, and no function uses it: `ctx.put` is an attribute.
put = open(__file__)


class Short(Exception):
    """What a function raises."""


class Sum:
    """State that functions share within a call."""

    unit = "x"

    def __init__(self):
        self.found = 0

    @property
    def total(self):
        return self.found + zlib.crc32(SALT)

    @staticmethod
    def begun():
        return Sum()

    def add(self, number):
        self.found += number
        return self


class Longer(Sum):
    def add(self, number):
        return super().add(number + 1)


def helper(number):
    return Longer.begun().add(gcd(number, 6)).total + Longer().add(number).total


things = fn.Operator("things", 2)


@things.register
async def use(ctx, number):
    text = xml.dom.minidom.parseString("<a/>").documentElement.tagName
    ctx.put({"number": number})
    return [helper(number), os.path.join("a", text), zlib.crc32(SALT)]


@things.register
async def fail(ctx):
    raise Short("too short")


def unsendable():
    import dataclasses

    @dataclasses.dataclass
    class Pair:
        left: int

    @things.register
    async def pair(ctx):
        return Pair(1).left


def main(url, workers):
    if workers < 0:
        unsendable()
    with fn.Runtime(connect(url), "script", [things], workers=abs(workers)) as program:
        print(program.send("things", "k", "use", 4).result(60))
        error = program.send("things", "k", "fail").exception(60)
        print(error.kind, error)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except InvalidOption as error:
        print("InvalidOption", error)
'''


def run(folder: Path, workers: int) -> str:
    """What the script prints."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), (folder / f"store{workers}").as_uri(), str(workers)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(tmp_path_factory.mktemp("local"), 0)


def test_modules_and_classes_of_a_main_script_are_there_in_workers(tmp_path: Path, local: str) -> None:
    """Replies and errors are those of one process."""
    assert local.splitlines()[1] == "Short too short"
    assert run(tmp_path, 1) == local


def test_a_class_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    """With what it is, and where to put it."""
    told = run(tmp_path, -1)
    assert told.startswith("InvalidOption")
    assert "class 'Pair' of the main script" in told
    assert "define them in a module" in told
