"""The places of the service, calls and connections, are not kept by callers without a token."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from support.network.held_calls import hold_checks, hold_watches, seconds_until_closed
from support.service.guarded_meta import GuardedMeta
from tussock.meta.node.wire.health import CHECKS_MAX
from tussock.meta.server.wire.grpc_server import CALLS_MAX, HANDSHAKE_SECONDS

CALLS = 4_200
SECONDS = 60.0
DROPPED = {"CANCELLED", "RESOURCE_EXHAUSTED"}
"""By gRPC, if more calls come than the service begins, or by the service."""


def write_one(meta: GuardedMeta) -> None:
    """A writer is served."""
    with meta.connect("writer") as store:
        kv = store.create_table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"a", b"1")], epoch)
        store.commit_epoch(epoch)
        assert kv.get(b"a") == b"1"


def ends_while_a_writer_is_served(meta: GuardedMeta, hold: Callable[..., object], seconds: float) -> Counter[str]:
    """How the calls ended, whose connections are still open when the writer comes."""

    async def body() -> Counter[str]:
        ends, channels = await hold(meta.process.address, CALLS, seconds)  # type: ignore[misc]
        await asyncio.to_thread(write_one, meta)
        for channel in channels:
            await channel.close()
        found: Counter[str] = ends
        return found

    assert CALLS > CALLS_MAX
    return asyncio.run(body())


def test_nobody_watches_the_health_of_the_service(tmp_path: Path) -> None:
    """A watch would never end, and needs no token: more of them than the service has places keep none."""
    with GuardedMeta(tmp_path) as meta:
        ends = ends_while_a_writer_is_served(meta, hold_watches, SECONDS)
        assert ends["UNIMPLEMENTED"] > CALLS / 2
        assert set(ends) <= {"UNIMPLEMENTED", *DROPPED}, ends


def test_a_check_of_health_without_its_request_ends(tmp_path: Path) -> None:
    """It waits a few seconds, and few of them wait at once."""
    with GuardedMeta(tmp_path) as meta:
        ends = ends_while_a_writer_is_served(meta, hold_checks, SECONDS)
        assert ends["DEADLINE_EXCEEDED"] >= CHECKS_MAX
        assert set(ends) <= {"DEADLINE_EXCEEDED", *DROPPED}, ends


@pytest.mark.slow
def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    """It counts among all connections until it has spoken TLS and HTTP/2, and gRPC would wait for two minutes."""
    with GuardedMeta(tmp_path) as meta:
        assert max(seconds_until_closed(meta.process.address, 300, 8 * HANDSHAKE_SECONDS)) < 6 * HANDSHAKE_SECONDS
        write_one(meta)
