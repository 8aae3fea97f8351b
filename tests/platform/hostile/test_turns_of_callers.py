"""Turns of callers, and calls that wait for no other caller: pure turns, then a service whose bucket hangs."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from support.buckets.minio import MinioServer
from support.service.guarded_meta import Caller, CallRefusal
from support.service.meta_process import MetaProcess
from support.waiting import eventually
from tussock.meta.client.transport import CALLS_AT_ONCE, GrpcTransport
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.meta.server.wire.call_turns import CALLERS_WAITING_MAX, WAITING_MAX, CallTurns
from tussock.meta.server.wire.grpc_server import CALL_THREADS, CONNECTION_CALLS_MAX
from tussock.statestore.errors import MetaUnavailable, RateLimited

CALL_SECONDS = 120


async def _order(calls: str, at_once: int) -> str:
    """The order in which calls of callers with these letters get their turns, if all come at once."""
    turns, had = CallTurns(at_once), []

    async def call(who: str) -> None:
        async with turns.turn(who):
            had.append(who)
            await asyncio.sleep(0)

    await asyncio.gather(*(call(who) for who in calls))
    return "".join(had)


@pytest.mark.parametrize(
    ("calls", "at_once", "order"),
    [
        ("aaaaaab", 1, "aabaaaa"),
        ("aaaabbcc", 1, "aabcabca"),
        ("aaaaaab", 2, "aaabaaa"),
        ("abc", 8, "abc"),
    ],
)
def test_callers_take_turns(calls: str, at_once: int, order: str) -> None:
    """However many calls one caller makes, another one waits for one of each."""
    assert asyncio.run(_order(calls, at_once)) == order


def test_one_caller_cannot_fill_the_queue() -> None:
    """All callers together cannot, either: then calls are refused with a time to come again."""

    async def fill() -> tuple[int, int]:
        turns, gate = CallTurns(1), asyncio.Event()
        refused: list[str] = []

        async def call(who: str) -> None:
            try:
                async with turns.turn(who):
                    await gate.wait()
            except RateLimited:
                refused.append(who)

        callers = ["first", *["a"] * (CALLERS_WAITING_MAX + 3), *[str(number) for number in range(WAITING_MAX)]]
        tasks = [asyncio.create_task(call(who)) for who in callers]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*tasks)
        return refused.count("a"), len(refused)

    assert asyncio.run(fill()) == (3, 3 + CALLERS_WAITING_MAX)


def test_a_caller_that_leaves_passes_its_turn_on() -> None:
    """Also if it leaves in that very moment."""

    async def leave() -> list[str]:
        turns, had = CallTurns(1), []

        async def call(who: str) -> None:
            async with turns.turn(who):
                had.append(who)

        async with turns.turn("holder"):
            waiting = [asyncio.create_task(call(who)) for who in "abc"]
            await asyncio.sleep(0)
            waiting[0].cancel()
        waiting[1].cancel()  # it has been called, and has not noticed yet
        await asyncio.gather(*waiting, return_exceptions=True)
        async with turns.turn("next"):
            return had

    assert asyncio.run(leave()) == ["c"]


@pytest.mark.minio
def test_heartbeats_wait_for_no_commit(minio: MinioServer) -> None:
    """All threads for calls wait for a hanging bucket; sessions, and so pins, are kept alive."""
    lasting = ("--leader.lease-seconds", "600", "--session.lease-seconds", "600")
    session = "ab" * 16
    with MetaProcess(minio.fresh_url(), *lasting, environment=minio.environment) as process:
        address = process.wait_until_it_leads().address
        caller, *others = (Caller(address, None) for _ in range(3))
        caller.call("OpenSession", pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="x"))
        made = pb.OpenWriterRequest(writer="w").SerializeToString()
        stubs = [other.channel.unary_unary(METHODS["OpenWriter"].path) for other in others]
        minio.pause()
        try:
            calls = [
                stub.future(made, metadata=caller.metadata, timeout=60) for stub in stubs for _ in range(CALL_THREADS)
            ]

            def waits() -> bool:
                """Whether a call that needs no bucket has to wait, too."""
                try:
                    caller.send_bytes("AllocateEpoch", b"", seconds=0.5)
                except CallRefusal:
                    return True
                return False

            eventually(waits)
            answer = caller.send_bytes(
                "Heartbeat", pb.HeartbeatRequest(session_id=session).SerializeToString(), seconds=20
            )
            assert pb.HeartbeatResponse.FromString(answer).term == 1
            assert not any(call.done() for call in calls)
        finally:
            minio.resume()
        for call in calls:
            call.result(120)
        for one in (caller, *others):
            one.close()


@pytest.mark.minio
def test_a_client_keeps_room_for_heartbeats_on_its_connection(minio: MinioServer) -> None:
    """It makes fewer calls at once than the service accepts on one connection; others wait, and not for ever."""
    session = "ab" * 16
    lasting = ("--leader.lease-seconds", "600", "--session.lease-seconds", "600")
    with MetaProcess(minio.fresh_url(), *lasting, environment=minio.environment) as process:
        transport = GrpcTransport(process.wait_until_it_leads().address)
        transport.call(
            METHODS["OpenSession"], pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="x"), CALL_SECONDS
        )
        minio.pause()
        try:
            with ThreadPoolExecutor(CONNECTION_CALLS_MAX) as pool:
                call = partial(transport.call, METHODS["OpenWriter"], pb.OpenWriterRequest(writer="w"))
                calls = [pool.submit(call, CALL_SECONDS) for _ in range(CONNECTION_CALLS_MAX)]

                def is_full() -> bool:
                    try:
                        transport.call(METHODS["AllocateEpoch"], pb.AllocateEpochRequest(), 0.5)
                    except MetaUnavailable as error:
                        return f"{CALLS_AT_ONCE} calls of this client wait" in str(error)
                    return False

                eventually(is_full)
                transport.call(METHODS["Heartbeat"], pb.HeartbeatRequest(session_id=session), 20)
                assert not any(call.done() for call in calls)
                minio.resume()
                for one in calls:
                    one.result(CALL_SECONDS)
        finally:
            minio.resume()
        transport.close()
