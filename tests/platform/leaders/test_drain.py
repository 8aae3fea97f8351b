"""SIGTERM and leadership: real processes, probed and ended as Kubernetes does it."""

import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from support.buckets.minio import MinioServer
from support.service.meta_process import MetaProcess
from support.waiting import eventually
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS, SERVICE
from tussock.meta.server.wire.grpc_server import LEADER_SERVICE
from tussock.statestore import connect

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
PROTOCOL = [("tussock-protocol", "1")]


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


def health(process: MetaProcess, service: str) -> int:
    with grpc.insecure_channel(process.address) as channel:
        asked = health_pb2.HealthCheckRequest(service=service)
        answer: int = health_pb2_grpc.HealthStub(channel).Check(asked, timeout=60).status
        return answer


def await_health(process: MetaProcess, service: str, wanted: int) -> None:
    """Return once the service reports that status."""
    eventually(lambda: health(process, service) == wanted)


def get(process: MetaProcess, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{process.http}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_shows_the_leader(store_url: str) -> None:
    """Of two replicas both serve and are ready; one leads."""
    with MetaProcess(store_url) as first:
        first.wait_until_it_leads()
        with MetaProcess(store_url) as second:
            await_health(first, LEADER_SERVICE, SERVING)
            for process in (first, second):
                assert health(process, "") == health(process, SERVICE) == SERVING
                assert get(process, "/healthz")[0] == 200
                assert get(process, "/readyz")[0] == 200
            assert health(second, LEADER_SERVICE) == NOT_SERVING
            with pytest.raises(grpc.RpcError) as raised:
                health(first, "somebody.else")
            assert raised.value.code() == grpc.StatusCode.NOT_FOUND
            first.terminate()
            await_health(second, LEADER_SERVICE, SERVING)
            assert first.wait() == 0


@pytest.mark.long
def test_leadership_is_given_back_before_the_lease_is_over(store_url: str) -> None:
    """The other replica leads at once, not when a long lease has run out, and accepts the client's next commit."""
    lease = ("--leader.lease-seconds", "60")
    with MetaProcess(store_url, *lease) as first:
        first.wait_until_it_leads()
        with MetaProcess(store_url, *lease) as second, connect(f"{first.url},{second.address}") as store:
            kv = store.create_table("kv")
            with store.pin_snapshot() as pinned:
                begun = time.monotonic()
                first.terminate()
                epoch = store.new_epoch()
                kv.ingest_batch([(b"a", b"1")], epoch)
                store.commit_epoch(epoch, writer="job", batch_id=1)
                took = time.monotonic() - begun
                assert first.wait() == 0
                assert second.wait_for(event="leading")["term"] == 2
                assert took < 45, "the lease is 60"
                assert kv.get(b"a") == b"1"
                assert pinned.table("kv").get(b"a") is None
                assert len(store.pins()) == 1
            first.wait_for(event="stopped")


def test_subscribers_get_the_reason_of_the_end(store_url: str) -> None:
    """The stream ends with an event that has the reason, and not with a broken connection."""
    with MetaProcess(store_url) as process, grpc.insecure_channel(process.address) as channel:
        process.wait_until_it_leads()
        opened = pb.OpenSessionRequest(session_id="d" * 32, kind=pb.CLIENT).SerializeToString()
        channel.unary_unary(METHODS["OpenSession"].path)(opened, metadata=PROTOCOL, timeout=60)
        events = channel.unary_stream(METHODS["Subscribe"].path, response_deserializer=pb.Event.FromString)(
            pb.SubscribeRequest(session_id="d" * 32).SerializeToString(), metadata=PROTOCOL, timeout=60
        )
        assert next(events).HasField("version")
        process.terminate()
        (last,) = list(events)
        assert last.closing.reason == "the replica is shutting down"
        assert process.wait() == 0


def test_commits_continue_during_a_rolling_restart(store_url: str) -> None:
    """A rolling restart under load: every acknowledged commit is there, once, and no call fails."""
    unhurried = ("--compaction.l0-stall-runs", "100000")  # nobody compacts here
    with MetaProcess(store_url, *unhurried) as first:
        first.wait_until_it_leads()
        with (
            MetaProcess(store_url, *unhurried) as second,
            connect(f"{first.url},{second.address}", deadline=120) as store,
        ):
            kv = store.create_table("kv")
            stop, begun, committed, failures = threading.Event(), threading.Event(), [], []

            def write() -> None:
                batch = 0
                while not stop.is_set():
                    try:
                        epoch = store.new_epoch()
                        kv.ingest_batch([(b"%06d" % batch, b"")], epoch)
                        store.commit_epoch(epoch, writer="job", batch_id=batch)
                    except Exception as error:  # whatever it is, it is a finding
                        failures.append(error)
                        return
                    committed.append(b"%06d" % batch)
                    batch += 1
                    begun.set()

            writer = threading.Thread(target=write)
            writer.start()
            assert begun.wait(60)
            first.terminate()
            assert first.wait() == 0
            second.wait_until_it_leads()
            before = len(committed)
            with MetaProcess(store_url, "--listen", first.address, *unhurried) as again:
                again.wait_for(event="serving")
                second.terminate()
                assert second.wait() == 0
                again.wait_until_it_leads()
                stop.set()
                writer.join(60)
                assert failures == []
                assert len(committed) >= before > 0
                assert [key for batch in kv.scan() for key in batch["key"].to_pylist()] == committed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_replica_ends_at_once(store_url: str, number: int) -> None:
    """It has nothing to wait for: code 0 long before `drain_seconds` are over."""
    with MetaProcess(store_url, "--drain-seconds", "50") as process:
        process.wait_until_it_leads()
        process.process.send_signal(number)
        assert process.process.wait(40) == 0
        process.wait()
        assert [line["event"] for line in process.lines][-3:] == ["draining", "no longer leading", "stopped"]


@pytest.mark.minio
@pytest.mark.parametrize(("seconds", "signals", "code"), [("2", 1, 0), ("60", 2, 1)])
def test_drain_ends_though_the_bucket_hangs(
    minio: MinioServer, tmp_path: Path, seconds: str, signals: int, code: int
) -> None:
    """A hanging call delays the end by `drain_seconds` at most, or until a second signal."""
    server = MinioServer(minio.binary, tmp_path)
    server.start()
    try:
        arguments = ("--drain-seconds", seconds)
        with MetaProcess(server.fresh_url(), *arguments, environment=server.environment) as process:
            process.wait_until_it_leads()
            server.pause()
            process.terminate()
            process.wait_for(event="draining")
            if signals == 2:
                process.terminate()
            assert process.process.wait(40) == code
            process.wait()
            assert process.lines[-1]["event"] == ("stopped" if code == 0 else "stopped at once, by a second signal")
    finally:
        server.resume()
        server.stop()


def test_port_in_use_is_reported(store_url: str) -> None:
    """A second replica on the same address ends with an error that names it."""
    with MetaProcess(store_url) as first, MetaProcess(store_url, "--listen", first.address) as second:
        assert second.wait() == 1
        assert any(f"cannot listen on {first.address}" in line for line in second.raw)
