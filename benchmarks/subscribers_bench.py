"""What new clients of a version with very many SSTs cost the meta node in memory: prints JSON.

    python benchmarks/subscribers_bench.py [--ssts N] [--clients N] [--folder FOLDER]

A real node on a folder whose base version has that many SSTs. All clients come at once, each with a connection, and ask
as Tussock's client does: the version (`GetVersion`), and then what follows it (`Subscribe`); or by `Subscribe` alone,
which brings the base version, too. They read what comes and keep nothing. Memory is what the node has in use, in MiB:
before, at most while they come, and after. A second crowd finds the base version encoded; for the last one there is an
entry after it.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from meta_processes import TUSSOCK, Process, free_port
from meta_version import Shop, big_version
from msgspec.structs import replace

from tussock.meta.log.format import base_path, encode_base
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket

SSTS = 100_000
CLIENTS = 50
START_TRIES = 60
PROTOCOL = (("tussock-protocol", "1"),)
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


class Memory:
    """What a process has in use."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def mib(self, field: str = "VmRSS") -> float:
        """Now, or at most since `forget` (`VmHWM`)."""
        for line in (self._folder / "status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
        raise SystemExit(f"no {field} in {self._folder}")

    def forget(self) -> None:
        """Count the most from now on."""
        (self._folder / "clear_refs").write_text("5")


async def await_leader(address: str, node: Process) -> None:
    """Return once the node opens sessions."""
    for _ in range(START_TRIES):
        node.check()
        try:
            await come(address, 0, asks=None)
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.5)
        else:
            return
    raise SystemExit("the node does not lead")


async def come(address: str, number: int, *, asks: bool | None) -> int:
    """One client: its session, the base version, and its subscription; returns the bytes that it was sent.

    With `None` it opens its session and no more.
    """
    async with grpc.aio.insecure_channel(address, OPTIONS) as channel:

        def call(name: str, request: Any) -> Any:
            method = METHODS[name]
            make = channel.unary_stream if method.streams else channel.unary_unary
            return make(method.path)(request.SerializeToString(), metadata=PROTOCOL, timeout=120)

        session = f"{number:032x}"
        await call("OpenSession", pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name=f"client-{number}"))
        seq = got = 0
        if asks:
            answer = await call("GetVersion", pb.GetVersionRequest())
            got, seq = len(answer), pb.GetVersionResponse.FromString(answer).update.seq
        if asks is None:
            return 0
        stream = call("Subscribe", pb.SubscribeRequest(session_id=session, after_seq=seq))
        if not asks:
            got += len(await stream.read())
        await asyncio.sleep(1)
        stream.cancel()
        await call("CloseSession", pb.CloseSessionRequest(session_id=session))
        return got


async def create_table(address: str) -> None:
    """An entry after the base version."""
    async with grpc.aio.insecure_channel(address) as channel:
        request = pb.CreateTableRequest(
            spec=pb.TableSpec(name="later", vnodes=256, block_bytes=1 << 16, compression="lz4")
        )
        await channel.unary_unary(METHODS["CreateTable"].path)(request.SerializeToString(), metadata=PROTOCOL)


async def crowd(address: str, clients: int, first: int, *, asks: bool) -> int:
    """All of them at once; returns the bytes that each was sent."""
    return max(await asyncio.gather(*(come(address, first + number, asks=asks) for number in range(clients))))


def measure(folder: Path, ssts: int, clients: int) -> dict[str, Any]:
    """All figures."""
    version = replace(big_version(ssts, Shop()), seq=1)
    bucket = open_bucket((folder / "bucket").as_uri(), system=RealSystem())
    base = encode_base(version)
    bucket.create(base_path(1), base)
    bucket.close()
    del version
    address = f"127.0.0.1:{free_port()}"
    http = f"127.0.0.1:{free_port()}"
    store = (folder / "bucket").as_uri()
    node = Process(
        folder / "node.log", TUSSOCK, "meta", "serve", "--store", store, "--listen", address, "--http_listen", http
    )
    try:
        asyncio.run(await_leader(address, node))
        memory = Memory(node.pid)
        found: dict[str, Any] = {"ssts": ssts, "clients": clients, "base_mib": round(len(base) / 2**20, 1)}
        first = 1
        found["idle"] = round(memory.mib())
        for title, asks in (("GetVersion", True), ("again", True), ("Subscribe", False), ("with later entries", True)):
            if title == "with later entries":
                asyncio.run(create_table(address))
            memory.forget()
            before = memory.mib()
            got = asyncio.run(crowd(address, clients, first, asks=asks))
            most = memory.mib("VmHWM")
            found[title] = {
                "before": round(before),
                "most": round(most),
                "more": round(most - before),
                "after": round(memory.mib()),
                "mib_each": round(got / 2**20, 1),
            }
            first += clients
    finally:
        node.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ssts", type=int, default=SSTS)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--folder", type=Path, default=None, help="on a disk; a temporary one unless given")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        print(json.dumps(measure(folder, options.ssts, options.clients), indent=1))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
