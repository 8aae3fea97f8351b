"""Limits on the calls and bytes of one caller."""

import grpc
import pyarrow as pa
import pytest

from support import inside
from support.service.platforms import Platform
from support.store.versions import FakeSystem
from tussock.meta.node.wire.rate_limits import CALLERS_MAX, RateLimits, TokenBucket
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.errors import ERROR_METADATA, decode_error
from tussock.meta.rpc.methods import METHODS, PIECE_BYTES_MAX
from tussock.statestore.errors import MessageTooLarge, RateLimited


def test_bucket_gives_its_burst_and_then_its_rate() -> None:
    """Three at once, then one each half second."""
    bucket = TokenBucket(rate=2, burst=3, calls=3, at=100)
    assert [bucket.take(100) for _ in range(4)] == [0, 0, 0, 0.5]
    assert bucket.take(100.25) == 0.25
    assert (bucket.take(100.5), bucket.take(100.5)) == (0, 0.5)


def test_pause_fills_the_bucket_up_to_its_burst() -> None:
    """A client that was silent for an hour may not make an hour's calls at once."""
    bucket = TokenBucket(rate=2, burst=3, calls=0, at=0)
    assert [bucket.take(3600) for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_flood_gets_its_calls_one_by_one() -> None:
    """After each pause too; once it has kept quiet for as long as a bucket takes to fill, it has its burst again."""
    bucket = TokenBucket(rate=2, burst=8, calls=8, at=0, burst_in_flood=1)
    assert [bucket.take(0) for _ in range(9)] == [0] * 8 + [0.5]
    assert [bucket.take(3) for _ in range(2)] == [0, 0.5]
    assert [bucket.take(6.9) for _ in range(2)] == [0, 0.5]
    assert not any(bucket.take(11) for _ in range(8))


def test_refused_call_does_not_count() -> None:
    """Otherwise a client that calls too often would never be served again."""
    bucket = TokenBucket(rate=1, burst=1, calls=0, at=0)
    assert all(bucket.take(0.5) for _ in range(100))
    assert bucket.take(1.0) == 0


def test_each_caller_has_a_separate_bucket() -> None:
    """A client that calls too often slows no other one."""
    limits = RateLimits(FakeSystem(), 1, 2)
    for _ in range(2):
        limits.check("a", "Commit")
    with pytest.raises(RateLimited, match="'a' makes more than 1 calls a second; wait 1000 ms") as raised:
        limits.check("a", "Commit")
    assert raised.value.args[1] == 1000
    limits.check("b", "Commit")


def test_heartbeats_are_counted_apart() -> None:
    """A client that commits too often keeps its session and its pins; floods of heartbeats are limited, too."""
    limits = RateLimits(FakeSystem(), 1, 1)
    limits.check("a", "Commit")
    with pytest.raises(RateLimited):
        limits.check("a", "Commit")
    limits.check("a", "Heartbeat")
    with pytest.raises(RateLimited):
        limits.check("a", "Unpin")


def test_rate_of_zero_is_no_limit() -> None:
    """`docs/meta-service.md` says so of `limits.calls_per_second`."""
    limits = RateLimits(FakeSystem(), 0, 1)
    for _ in range(1000):
        limits.check("a", "Commit")


def test_buckets_of_unknown_callers_are_bounded() -> None:
    """Callers whose buckets are full again are forgotten, and the oldest, too, if there are still too many."""
    system = FakeSystem()
    limits = RateLimits(system, 1, 2)
    for number in range(CALLERS_MAX):
        limits.check(f"caller {number}", "Commit")
    limits.check("one more", "Commit")
    assert inside.callers_known(limits) == CALLERS_MAX
    system.sleep(10)
    limits.check("and one", "Commit")
    assert inside.callers_known(limits) == 1


def test_client_waits_for_the_time_in_the_refusal() -> None:
    """A caller beyond its rate is slowed down, and does not fail."""
    with Platform("memory://limited") as platform:
        store = platform.connect()
        kv = store.create_table("kv")
        gate = platform.leader.gate
        gate.limits = RateLimits(platform.leader.system, 50, 1)
        for number in range(5):
            epoch = store.new_epoch()
            kv.ingest_batch([(b"%d" % number, b"")], epoch)
            store.commit_epoch(epoch)
        assert [row for batch in kv.scan() for row in batch["key"].to_pylist()] == [b"0", b"1", b"2", b"3", b"4"]
        assert b'code="RESOURCE_EXHAUSTED",method="Commit"' in platform.leader.metrics.render()


def commit(size: int) -> pb.CommitRequest:
    return pb.CommitRequest(session_id="0" * 32, epoch=1, payloads={"x": b"x" * size})


@pytest.mark.parametrize(
    ("size", "said"), [(20_000, "Commit was sent 20047 bytes or more, and takes 10000"), (200_000, "larger than max")]
)
def test_large_message_is_refused_by_the_service(size: int, said: str) -> None:
    """A foreign client is refused, by gRPC itself if the message is not in pieces; the version stays."""
    with Platform("memory://", message_bytes_max=10_000) as platform:
        store = platform.connect()
        seq = store.version().seq
        request = commit(size).SerializeToString()
        with grpc.insecure_channel(platform.leader.address) as channel, pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary(METHODS["Commit"].path)(request, metadata=[("tussock-protocol", "1")], timeout=60)
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert said in raised.value.details()
        assert store.version().seq == seq


def test_large_message_is_not_sent_by_the_client() -> None:
    """Tussock's client knows the limit from its session, and names the size."""
    with Platform("memory://", message_bytes_max=10_000) as platform:
        store = platform.connect()
        connection = inside.connection(inside.backend(store))
        request = commit(20_000)
        with pytest.raises(MessageTooLarge, match=r"Commit would send 20047 bytes .* takes 10000") as raised:
            connection.call("Commit", request)
        assert raised.value.args[1:] == (20047, 10_000)
        assert b'code="RESOURCE_EXHAUSTED"' not in platform.leader.metrics.render()
        # As if the limit had been lowered since.
        inside.forget_message_limit(connection)
        with pytest.raises(MessageTooLarge, match="Commit was sent 20047 bytes"):
            connection.call("Commit", request)
        with pytest.raises(MessageTooLarge, match=r"DropTable would send 7000[0-9] bytes"):
            connection.call("DropTable", pb.DropTableRequest(name="x" * 70_000))


def test_large_request_travels_in_pieces() -> None:
    """As one message it would be more than gRPC lets in or out."""
    with Platform("memory://pieces") as platform:
        store = platform.connect()
        columns = {f"column_{number:05}_{'x' * 80}": pa.int64() for number in range(2_000)}
        schema = pa.schema([pa.field("k", pa.int64(), nullable=False), *(pa.field(*one) for one in columns.items())])
        assert schema.serialize().size > PIECE_BYTES_MAX
        store.create_table("wide", schema, ["k"])
        assert store.table("wide").schema.names == schema.names


def test_error_of_the_limit_travels_whole() -> None:
    """A foreign client finds the waiting time among the facts."""
    with Platform("memory://") as platform:
        platform.leader.gate.limits = RateLimits(FakeSystem(), 0.5, 1)
        with grpc.insecure_channel(platform.leader.address) as channel:
            ask = channel.unary_unary(METHODS["GetStatus"].path)
            ask(b"", metadata=[("tussock-protocol", "1")], timeout=60)
            with pytest.raises(grpc.RpcError) as raised:
                ask(b"", metadata=[("tussock-protocol", "1")], timeout=60)
        error = decode_error(dict(raised.value.trailing_metadata())[ERROR_METADATA])
        assert (type(error), error.args[1]) == (RateLimited, 2000)


def test_jobs_with_one_certificate_are_distinguished_by_host() -> None:
    """All jobs of a store may share the writers' identity: one that calls too often does not slow the others."""
    limits = RateLimits(FakeSystem(), 1, 1)
    limits.check(("writer", "ipv4:10.0.0.1"), "Commit")
    with pytest.raises(RateLimited, match=r"'writer at ipv4:10\.0\.0\.1' makes more than 1 calls"):
        limits.check(("writer", "ipv4:10.0.0.1"), "Commit")
    limits.check(("writer", "ipv4:10.0.0.2"), "Commit")
