"""Hostile calls at a rate, from a separate process.

`python -m support.service.hostile_load ADDRESS RATE SECONDS TOKEN...`

A third of them have no token, the others those given, in turn. Tells on standard output, as JSON, how many calls the
rate came to (`offered`), how many were made (`calls`; none while a connection waits for as many as it may), and how
they ended. What was not answered when it is over is given up.
"""

import asyncio
import collections
import contextlib
import json
import sys
import time

import grpc
import grpc.aio

from support.service.hostile import Hostile
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS, PIECE_BYTES_MAX

CALL_SECONDS = 20
CONNECTIONS = 4
WAITING_MAX = 256
"""Calls of one connection, as many as the service accepts."""
NAMES = [name for name in METHODS if name not in ("CloseSession", "PauseCompaction", "Subscribe")]
MADE = 400
"""Requests of each caller, made in advance: the measurement is of the service."""


async def _attack(address: str, token: str, rate: float, seconds: float) -> tuple[int, int, collections.Counter[str]]:
    metadata = (("tussock-protocol", "1"), *((("authorization", f"Bearer {token}"),) if token else ()))
    session = f"{hash(token) & (2**128 - 1):032x}"
    made = Hostile(token, [session, "nothing"])
    requests = [(name, made.request(METHODS[name])) for name in NAMES * (MADE // len(NAMES))]
    ends: collections.Counter[str] = collections.Counter()
    running: set[asyncio.Task[None]] = set()
    count = tried = 0
    async with contextlib.AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]))
            for _ in range(CONNECTIONS)
        ]
        stubs = {name: [one.stream_unary(METHODS[name].path) for one in channels] for name in NAMES}
        single = {name: [one.unary_unary(METHODS[name].path) for one in channels] for name in NAMES}

        async def call(number: int, name: str, data: bytes) -> None:
            try:
                if len(data) <= PIECE_BYTES_MAX:
                    await single[name][number % CONNECTIONS](data, metadata=metadata, timeout=CALL_SECONDS)
                else:
                    pieces = [data[at : at + PIECE_BYTES_MAX] for at in range(0, len(data), PIECE_BYTES_MAX)]
                    await stubs[name][number % CONNECTIONS](iter(pieces), metadata=metadata, timeout=CALL_SECONDS)
                ends["OK"] += 1
            except grpc.RpcError as error:
                ends[error.code().name] += 1
                if error.code().name in ("INTERNAL", "UNAVAILABLE", "UNKNOWN"):
                    ends[f"{error.code().name}: {error.details()[:150]}"] += 1

        opening = pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="x")
        began = time.monotonic()
        await call(0, "OpenSession", opening.SerializeToString())
        while (now := time.monotonic() - began) < seconds:
            while tried < now * rate:
                tried += 1
                if len(running) < CONNECTIONS * WAITING_MAX:
                    task = asyncio.ensure_future(call(count, *requests[count % len(requests)]))
                    running.add(task)
                    task.add_done_callback(running.discard)
                    count += 1
            await asyncio.sleep(0.005)
        for task in running:
            task.cancel()
    return tried, count, ends


async def _main(address: str, rate: float, seconds: float, tokens: list[str]) -> None:
    found = await asyncio.gather(
        _attack(address, "", rate / 3, seconds),
        *(_attack(address, token, rate * 2 / 3 / len(tokens), seconds) for token in tokens),
    )
    ends: collections.Counter[str] = collections.Counter()
    for _, _, some in found:
        ends += some
    offered, calls = (sum(one[at] for one in found) for at in (0, 1))
    print(json.dumps({"offered": offered, "calls": calls, "ends": ends}))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]))
