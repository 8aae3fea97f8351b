"""A few large answers go at the same time, and a client that does not read its own holds up others for a while only."""

import asyncio
import time
from pathlib import Path

import pyarrow as pa
import pytest

from support.service.guarded_meta import GuardedMeta
from support.virtual_time import run_in_virtual_time
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.meta.server.wire.large_answers import (
    BYTES_AT_ONCE,
    LARGE_AT_ONCE,
    LARGE_BYTES,
    LARGE_SECONDS_MAX,
    LargeAnswers,
)


def test_a_place_is_free_after_its_answer_or_its_time() -> None:
    """An answer that ends late does not give back the place of another one."""

    async def body() -> None:
        loop, places = asyncio.get_running_loop(), LargeAnswers()
        held = [await places.enter(LARGE_BYTES) for _ in range(LARGE_AT_ONCE)]
        assert loop.time() == 0
        held[0]()
        await places.enter(LARGE_BYTES)
        assert loop.time() == 0
        for _ in range(LARGE_AT_ONCE):
            await places.enter(LARGE_BYTES)
        assert loop.time() == LARGE_SECONDS_MAX
        for leave in held:
            leave()
        await places.enter(LARGE_BYTES)
        assert loop.time() == 2 * LARGE_SECONDS_MAX

    run_in_virtual_time(body())


def test_very_large_answers_go_one_by_one() -> None:
    """What gRPC holds of all of them is bounded, too; one that is larger than that goes alone, and all in turn."""

    async def body() -> None:
        loop, places, gone = asyncio.get_running_loop(), LargeAnswers(), list[str]()

        async def go(name: str, size: int) -> None:
            leave = await places.enter(size)
            gone.append(name)
            await asyncio.sleep(1)
            leave()

        names = {
            "half": BYTES_AT_ONCE // 2,
            "other": BYTES_AT_ONCE // 2,
            "huge": 2 * BYTES_AT_ONCE,
            "small": LARGE_BYTES,
        }
        tasks = [asyncio.create_task(go(name, size)) for name, size in names.items()]
        seen = []
        for _ in range(3):
            await asyncio.sleep(0.5)
            seen.append(list(gone))
            await asyncio.sleep(0.5)
        await asyncio.gather(*tasks)
        assert seen == [["half", "other"], ["half", "other", "huge"], ["half", "other", "huge", "small"]]
        assert loop.time() == 3

    run_in_virtual_time(body())


def test_a_client_that_leaves_while_it_waits_keeps_no_place() -> None:
    """Before its turn, and in the moment of its turn."""

    async def body() -> None:
        loop, places = asyncio.get_running_loop(), LargeAnswers()
        leave = await places.enter(2 * BYTES_AT_ONCE)
        waiting = [asyncio.create_task(places.enter(LARGE_BYTES)) for _ in range(LARGE_AT_ONCE + 2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        leave()
        waiting[1].cancel()
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in done] == [True, True] + [False] * LARGE_AT_ONCE
        assert loop.time() == 0

    run_in_virtual_time(body())


@pytest.mark.long
@pytest.mark.slow
def test_subscribers_that_do_not_read_hold_up_others_for_a_while_only(tmp_path: Path) -> None:
    """Story: four of them kept all places, and no client was told the tables of the store any more."""
    columns = [(f"{at:04d}{'x' * 200}", pa.int64()) for at in range(3_000)]
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), *columns])
    with GuardedMeta(tmp_path) as meta:
        with meta.connect("writer") as store:
            for number in range(8):
                store.create_table(f"wide{number}", schema=schema, primary_key=["k"])
        assert 8 * schema.serialize().size > 8 * LARGE_BYTES
        held = []
        for number in range(LARGE_AT_ONCE):
            caller, session = meta.caller("reader"), f"{number:032x}"
            caller.call("OpenSession", pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="idle"))
            request = pb.SubscribeRequest(session_id=session, after_seq=0).SerializeToString()
            held.append(caller.channel.unary_stream(METHODS["Subscribe"].path)(request, metadata=caller.metadata))
        time.sleep(2)  # they are to come before the client that is measured, and nothing tells when they have
        began = time.monotonic()
        with meta.connect("reader", deadline=4 * LARGE_SECONDS_MAX) as store:
            assert len(store.tables()) == 8
        assert time.monotonic() - began < 3 * LARGE_SECONDS_MAX
        for one in held:
            one.cancel()
