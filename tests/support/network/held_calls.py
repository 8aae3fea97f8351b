"""Calls and connections of somebody without a token, who would keep a server's places: opened, and never ended."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Sequence

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
CALLS_OF_A_CONNECTION = 64
"""A server takes as many of one connection at once."""


async def hold_watches(address: str, count: int, seconds: float) -> tuple[Counter[str], Sequence[grpc.aio.Channel]]:
    """Watch the health of `count` services; returns how each call ended, or `held`, with connections to be closed."""
    asked = health_pb2.HealthCheckRequest(service="nobody").SerializeToString()

    def opened(channel: grpc.aio.Channel) -> grpc.aio.UnaryStreamCall:
        return channel.unary_stream(WATCH)(asked)

    return await _hold(address, count, seconds, opened)


async def hold_checks(address: str, count: int, seconds: float) -> tuple[Counter[str], Sequence[grpc.aio.Channel]]:
    """The same with checks whose request never comes."""

    def opened(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamCall:
        return channel.stream_stream(CHECK)()

    return await _hold(address, count, seconds, opened)


async def _hold(address, count, seconds, opened) -> tuple[Counter[str], Sequence[grpc.aio.Channel]]:  # type: ignore[no-untyped-def]
    channels = [
        grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        for _ in range(0, count, CALLS_OF_A_CONNECTION)
    ]
    calls = [opened(channels[number // CALLS_OF_A_CONNECTION]) for number in range(count)]

    async def end(call) -> str:  # type: ignore[no-untyped-def]
        try:
            return str((await asyncio.wait_for(asyncio.shield(call.code()), seconds)).name)
        except TimeoutError:
            return "held"

    return Counter(await asyncio.gather(*map(end, calls))), channels


def seconds_until_closed(address: str, count: int, seconds: float) -> list[float]:
    """For how long a server keeps each of `count` connections that say nothing; at most for `seconds`."""
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    held = [socket.create_connection((host, int(port)), 5) for _ in range(count)]
    took = []
    for one in held:
        with one:
            one.settimeout(max(began + seconds - time.monotonic(), 0.01))
            try:
                while one.recv(1024):
                    pass
            except (TimeoutError, ConnectionError):
                pass
        took.append(time.monotonic() - began)
    return took
