"""Dozens of large calls at once, from unknown callers and from callers with a token that misuse it.

The service has the memory that the operator gives it, 1 GiB, and is sent many times that much at once.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from support.service.guarded_meta import GuardedMeta
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS, PIECE_BYTES_MAX
from tussock.meta.server.wire.grpc_server import CONNECTION_CALLS_MAX

MEMORY_BYTES_MAX = 1 << 30
"""`resources.limits.memory` of a Meta whose manifest does not set it."""
GROWTH_BYTES_MAX = 256 << 20
CALLS = 24
BYTES = 48 << 20
SECONDS = 120
SESSION = "ab" * 16


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[GuardedMeta]:
    with GuardedMeta(tmp_path) as service:
        yield service


def at_once(count: int, work: Callable[[int], object]) -> None:
    """Do the work in `count` threads and wait for them; errors are expected."""

    def try_call(number: int) -> None:
        try:
            work(number)
        except Exception:
            return

    threads = [threading.Thread(target=try_call, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def serves(meta: GuardedMeta) -> None:
    """It still serves others, and has not come near its limit."""
    with meta.connect("writer") as store:
        kv = store.create_table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"a", b"1")], epoch)
        store.commit_epoch(epoch)
        assert kv.get(b"a") == b"1"
    assert meta.memory("VmHWM") < MEMORY_BYTES_MAX
    assert meta.process.process.poll() is None


@pytest.mark.parametrize("method", ["GetStatus", "Commit", "Subscribe"])
def test_no_message_is_read_for_callers_without_a_token(meta: GuardedMeta, method: str) -> None:
    """Whole messages of 48 MiB, twenty-four at once: gRPC accepts none of these."""
    before = meta.memory("VmHWM")
    data = b"x" * BYTES
    at_once(CALLS, lambda _: meta.caller(None).send_bytes(method, data, SECONDS))
    assert meta.memory("VmHWM") - before < GROWTH_BYTES_MAX
    serves(meta)


def test_no_piece_is_read_for_callers_without_a_token(meta: GuardedMeta) -> None:
    """Each piece is small enough for gRPC, and the service reads none of them."""
    before = meta.memory("VmHWM")
    piece = b"x" * PIECE_BYTES_MAX
    count = BYTES // len(piece)
    at_once(CALLS, lambda _: meta.caller(None).in_pieces("Commit", (piece for _ in range(count))))
    assert meta.memory("VmHWM") - before < GROWTH_BYTES_MAX
    serves(meta)


@pytest.mark.parametrize(("role", "method"), [("reader", "OpenSession"), ("reader", "GetStatus"), ("writer", "Commit")])
def test_callers_with_a_token_get_a_bounded_share(meta: GuardedMeta, role: str, method: str) -> None:
    """The bytes of all callers together have a limit, and so has each request."""
    before = meta.memory("VmHWM")
    piece = b"x" * (PIECE_BYTES_MAX - 16)
    count = BYTES // len(piece)
    at_once(CALLS, lambda _: meta.caller(role).in_pieces(method, (piece for _ in range(count))))
    assert meta.memory("VmHWM") - before < GROWTH_BYTES_MAX
    serves(meta)


def test_a_request_of_empty_records_costs_little(meta: GuardedMeta) -> None:
    """Two bytes each on the wire, and hundreds as objects: they are refused while they are counted."""
    caller = meta.caller("writer")
    caller.call("OpenSession", pb.OpenSessionRequest(session_id=SESSION, kind=pb.CLIENT, name="x"))
    before = meta.memory("VmHWM")
    tables = [pb.TableRuns(table_id=1, runs=[pb.Run(ssts=[pb.SstInfo()] * 500_000)])]
    made = pb.CommitRequest(session_id=SESSION, epoch=1, tables=tables)
    at_once(CALLS, lambda _: meta.caller("writer").call("Commit", made))
    assert meta.memory("VmHWM") - before < GROWTH_BYTES_MAX
    serves(meta)


def test_unfinished_requests_block_no_other_caller(meta: GuardedMeta) -> None:
    """Half of the parallel requests are kept for others; and each one ends by a timeout of the service."""
    waiting = threading.Event()

    def never() -> Iterator[bytes]:
        yield b""
        waiting.wait(SECONDS)

    channels = [meta.caller("reader") for _ in range(12)]
    calls: list[grpc.Future] = [
        caller.channel.stream_unary(METHODS["OpenSession"].path).future(
            never(), metadata=caller.metadata, timeout=SECONDS
        )
        for caller in channels
        for _ in range(CONNECTION_CALLS_MAX)
    ]
    serves(meta)
    assert any(call.done() for call in calls), "those beyond the half are refused at once"
    waiting.set()
    for call in calls:
        call.cancel()
