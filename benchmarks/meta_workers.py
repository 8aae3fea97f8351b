"""Separate processes beside the one that measures: writers and subscribers of a platform."""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from tussock.meta.client.access import dial_with
from tussock.meta.client.connection import MetaConnection, NoOwner
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore import connect
from tussock.statestore.base.identity import Access
from tussock.statestore.base.system import RealSystem

ROWS = 10
VALUE = b"x" * 100


def rows(batch: int) -> list[tuple[bytes, bytes | None]]:
    """One small batch."""
    return [(b"%08d-%02d" % (batch, row), VALUE) for row in range(ROWS)]


def wait_for_go() -> None:
    """Say that all is ready, and wait for the word."""
    print("ready", flush=True)
    sys.stdin.readline()


def write(addresses: str, tables: Sequence[str], seconds: float) -> dict[str, Any]:
    """One writer a table, each a thread: it commits epochs of one small SST as fast as it can.

    Returns when each commit began, by the monotonic clock that all processes of a machine share, and how long it took.
    """
    with connect(f"tussock://{addresses}") as store:
        took: list[tuple[float, float]] = []
        failed: list[BaseException] = []

        def one(name: str) -> None:
            table = store.table(name)
            mine = []
            batch = 0
            try:
                while (began := time.monotonic()) < end:
                    epoch = store.new_epoch()
                    table.ingest_batch(rows(batch), epoch)
                    store.commit_epoch(epoch, writer=name, batch_id=batch)
                    mine.append((began, time.monotonic() - began))
                    batch += 1
            except BaseException as error:
                failed.append(error)
            took.extend(mine)

        # What is first of its kind in a process: connections, imports.
        warm = store.new_epoch()
        store.table(tables[0]).ingest_batch(rows(0), warm)
        store.commit_epoch(warm)
        wait_for_go()
        end, used = time.monotonic() + seconds, time.process_time()
        threads = [threading.Thread(target=one, args=(name,)) for name in tables]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return {"commits": sorted(took), "cpu_seconds": time.process_time() - used}


class _Listener(NoOwner):
    def __init__(self, seq: int, came: list[tuple[int, float]]) -> None:
        self._seq = seq
        self._came = came

    def after_seq(self) -> int:
        return self._seq

    def on_event(self, event: pb.Event) -> None:
        if event.HasField("version"):
            now, update = time.monotonic(), event.version
            self._came.extend((seq, now) for seq in range(update.first_seq, update.seq + 1))


def subscribe(addresses: str, clients: int, seconds: float) -> dict[str, Any]:
    """Sessions that are subscribed; answers when which of them had which entry of the log."""
    system = RealSystem()
    dial = dial_with(Access(), system)
    came: list[tuple[int, float]] = []
    connections = []
    for number in range(clients):
        name = f"{socket.gethostname()}:{os.getpid()}:{number}"
        connection = MetaConnection(addresses.split(","), system, dial, name=name)
        newest = connection.call("GetVersion", pb.GetVersionRequest(after_seq=0))
        assert isinstance(newest, pb.GetVersionResponse)
        connection.start(_Listener(newest.update.seq, came))
        connections.append(connection)
    wait_for_go()
    time.sleep(seconds)
    for connection in connections:
        connection.close()
    return {"came": came}


def main() -> None:
    function, arguments = sys.argv[1:]
    print(json.dumps({"write": write, "subscribe": subscribe}[function](**json.loads(arguments))))


if __name__ == "__main__":
    main()
