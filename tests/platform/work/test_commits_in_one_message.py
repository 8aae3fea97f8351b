"""`CommitEach`: several commits of a session in one message, each decided for itself; and the client that sends it."""

import threading
from collections.abc import Iterator
from itertools import count

import grpc
import msgspec
import pyarrow as pa
import pytest
from google.protobuf.message import Message

from support.service.platforms import QUIET, Platform
from support.waiting import eventually
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.node.wire.rate_limits import RateLimits
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import sst_to_message
from tussock.meta.rpc.errors import ERROR_METADATA, decode_error
from tussock.meta.rpc.methods import METHODS
from tussock.meta.server.handlers.commits import COMMITS_MAX
from tussock.meta.server.wire.gate import FAULTS_BURST, FAULTS_PER_SECOND
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import SstInfo, data_path
from tussock.statestore.errors import AccessDenied, InvalidOption, ObjectStoreUnavailable, RateLimited, SessionExpired

_names = count(1)
SESSION = "0123456789abcdef" * 2


class Service:
    """A platform, and a client in another language that has a session there."""

    def __init__(self, platform: Platform, channel: grpc.Channel) -> None:
        self.platform = platform
        self._channel = channel
        self.store: StateStore = platform.connect()
        self.store.create_table("kv")
        self.opened = self.call("OpenSession", pb.OpenSessionRequest(session_id=SESSION, kind=pb.CLIENT, name="raw"))

    def call(self, method: str, request: Message) -> Message:
        described = METHODS[method]
        stub = self._channel.unary_unary(
            described.path, described.request.SerializeToString, described.response.FromString
        )
        return stub(request, timeout=60, metadata=(("tussock-protocol", "1"),))

    def each(self, *commits: pb.CommitRequest, known_seq: int = 0) -> pb.CommitEachResponse:
        request = pb.CommitEachRequest(session_id=SESSION, known_seq=known_seq, commits=commits)
        answer = self.call("CommitEach", request)
        assert isinstance(answer, pb.CommitEachResponse)
        return answer

    def refusal(self, request: pb.CommitEachRequest) -> Exception:
        with pytest.raises(grpc.RpcError) as raised:
            self.call("CommitEach", request)
        return decode_error(dict(raised.value.trailing_metadata())[ERROR_METADATA])

    def commit(self, epoch: int, **changes: object) -> pb.CommitRequest:
        """A commit whose SST comes along."""
        (run,) = self.store.table("kv").upload([pa.record_batch({"key": [b"%06d" % epoch], "value": [b"x"]})])
        sst: SstInfo = run.ssts[0]
        bucket = self.platform.leader.bucket
        data = bucket.get(data_path(sst.id))
        bucket.delete([data_path(sst.id)])
        return self.named(epoch, sst, payloads={sst.id: data}, **changes)

    def named(self, epoch: int, sst: SstInfo, table_id: int = 1, **changes: object) -> pb.CommitRequest:
        runs = [pb.Run(ssts=[sst_to_message(sst)])]
        return pb.CommitRequest(epoch=epoch, tables=[pb.TableRuns(table_id=table_id, runs=runs)], **changes)


def serve(**options: object) -> Iterator[Service]:
    with (
        Platform(f"memory://commits-{next(_names)}", **options) as platform,
        grpc.insecure_channel(platform.leader.address) as channel,
    ):
        yield Service(platform, channel)


@pytest.fixture
def service() -> Iterator[Service]:
    yield from serve(picker=QUIET)


def test_each_commit_has_its_epoch_and_all_share_a_log_entry(service: Service) -> None:
    """Epochs ascend in the order of the message, and what leads to them comes once."""
    before = service.platform.leader.node.meta.version().seq
    commits = [service.commit(7, writer=f"w{number}", batch_id=0) for number in range(5)]
    answer = service.each(*commits, known_seq=before)
    epochs = [one.epoch for one in answer.commits]
    assert epochs[0] == 7
    assert epochs == sorted(set(epochs))
    assert service.platform.leader.node.meta.version().seq == before + 1
    assert {one.seq for one in answer.commits} == {before + 1} == {answer.update.seq}
    assert (answer.update.first_seq, len(answer.update.entries)) == (before + 1, 1)
    service.store.wait_epoch(epochs[-1])
    assert service.store.table("kv").get(b"000007") == b"x"


def test_a_refused_commit_leaves_the_others(service: Service) -> None:
    """It has the kind of the error that `Commit` would end with, and nothing of it is there."""
    damaged = service.commit(9)
    damaged.payloads[next(iter(damaged.payloads))] = b"no SST"
    (run,) = service.store.table("kv").upload([pa.record_batch({"key": [b"x"], "value": [b"x"]})])
    answer = service.each(
        service.commit(7),
        damaged,
        service.named(9, msgspec.structs.replace(run.ssts[0]), table_id=99),
        service.commit(9, expect={1: 3}),
        service.commit(9, writer="x" * 1025, batch_id=1),
        service.commit(11),
    )
    assert [one.refused for one in answer.commits] == [
        "",
        "InvalidBatch",
        "TableNotFound",
        "Conflict",
        "InvalidOption",
        "",
    ]
    assert [bool(one.epoch) for one in answer.commits] == [True, False, False, False, False, True]
    assert len(service.platform.leader.node.meta.version().ssts()) == 2


def test_a_repeated_message_gets_the_first_epochs(service: Service) -> None:
    """Also a part of it that comes alone."""
    commits = [service.commit(7, writer="w", batch_id=number) for number in range(3)]
    first = [one.epoch for one in service.each(*commits).commits]
    assert [one.epoch for one in service.each(*commits).commits] == first
    commits[1].session_id = SESSION
    alone = service.call("Commit", commits[1])
    assert isinstance(alone, pb.CommitResponse)
    assert alone.epoch == first[1]
    assert len(service.platform.leader.node.meta.version().ssts()) == 3


def test_a_later_commit_sees_an_earlier_one_of_its_message(service: Service) -> None:
    """They are one history, in their order."""
    first = service.commit(7, writer="w", batch_id=1)
    answer = service.each(first, first, service.commit(8, expect={1: 6}))
    assert [one.epoch for one in answer.commits] == [7, 7, 0]
    assert answer.commits[2].refused == "Conflict"


def test_a_commit_is_held_back_alone() -> None:
    """Another table's go through."""
    for service in serve(picker=PickerConfig(l0_merge_min=1 << 20, l0_runs_max=1 << 20, l0_stall_runs=1)):
        service.store.create_table("other")
        (run,) = service.store.table("other").upload([pa.record_batch({"key": [b"a"], "value": [b"x"]})])
        held, alone = service.each(service.commit(7)), service.commit(8)
        assert held.commits[0].epoch == 7
        answer = service.each(alone, service.named(9, run.ssts[0], table_id=2))
        assert answer.commits[0].retry_after_ms > 0
        assert "1 uncompacted runs" in answer.commits[0].stall_reason
        assert not answer.commits[0].epoch
        assert answer.commits[1].epoch == 9


def test_a_commit_that_may_have_happened_refuses_the_message(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are repeated, and each happens once."""
    bucket = service.platform.leader.bucket
    commits = [service.commit(7, writer=f"w{number}", batch_id=0) for number in range(2)]
    create, get = bucket.create, bucket.get

    def create_unheard(path: str, data: bytes) -> bool:
        create(path, data)
        raise ObjectStoreUnavailable(f"{path}: no answer")

    def get_nothing_new(path: str, bytes_max: int | None = None) -> bytes:
        if path.startswith("log/"):
            raise ObjectStoreUnavailable(f"{path}: no answer")
        return get(path, bytes_max)

    with monkeypatch.context() as outage:
        outage.setattr(bucket, "create", create_unheard)
        outage.setattr(bucket, "get", get_nothing_new)
        request = pb.CommitEachRequest(session_id=SESSION, commits=commits)
        assert isinstance(service.refusal(request), ObjectStoreUnavailable)
    assert all(one.epoch for one in service.each(*commits).commits)
    assert len(service.platform.leader.node.meta.version().ssts()) == 2


def test_what_is_wrong_with_the_message_refuses_it_whole(service: Service) -> None:
    many = pb.CommitEachRequest(session_id=SESSION, commits=[pb.CommitRequest()] * (COMMITS_MAX + 1))
    error = service.refusal(many)
    assert isinstance(error, InvalidOption)
    assert f"{COMMITS_MAX + 1} commits in one message: {COMMITS_MAX} are allowed" in str(error)
    unknown = pb.CommitEachRequest(session_id="f" * 32, commits=[service.commit(7)])
    assert isinstance(service.refusal(unknown), SessionExpired)
    assert service.each().commits == []
    assert service.opened.commits_max == COMMITS_MAX


def test_each_commit_counts_as_a_call(service: Service) -> None:
    """A caller gets no more through in one message than in several."""
    gate = service.platform.leader.gate
    gate.limits = RateLimits(service.platform.leader.system, 0.001, 5)
    commits = [pb.CommitRequest(epoch=7)] * 3
    service.each(*commits)
    error = service.refusal(pb.CommitEachRequest(session_id=SESSION, commits=commits))
    assert isinstance(error, RateLimited)


def test_each_mistake_counts_as_one(service: Service) -> None:
    """No client that works makes that many, in messages or in calls."""
    gate = service.platform.leader.gate
    gate.limits = RateLimits(service.platform.leader.system, 10**6, 10**6)
    wrong = [service.commit(9, writer="x" * 1025, batch_id=1)] * COMMITS_MAX
    for _ in range(FAULTS_BURST // COMMITS_MAX + 1):
        assert {one.refused for one in service.each(*wrong).commits} == {"InvalidOption"}
    error = service.refusal(pb.CommitEachRequest(session_id=SESSION))
    assert isinstance(error, RateLimited)
    assert f"more than {FAULTS_PER_SECOND} calls a second that are refused" in str(error)


class Writers:
    """Threads of one client, each with a table, that commit until they are told to stop."""

    def __init__(self, store: StateStore, threads: int, batches: int) -> None:
        self.told: dict[bytes, int] = {}
        self._store = store
        self._tables = [store.create_table(f"table-{number}") for number in range(threads)]
        self._batches = batches
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def rows(self) -> dict[bytes, int]:
        """The epoch of each key, as the store has it."""
        newest = self._store.committed_epoch
        batches = (batch for table in self._tables for batch in table.changes(0, newest))
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert len(rows) == len({row["key"] for row in rows})
        return {row["key"]: row["epoch"] for row in rows}

    def _write(self, number: int) -> None:
        for batch in range(self._batches):
            key = b"%d-%d" % (number, batch)
            epoch = self._store.new_epoch()
            self._tables[number].ingest_batch([(key, b"x")], epoch)
            self.told[key] = self._store.commit_epoch(epoch, writer=f"w{number}", batch_id=batch)
            assert self._tables[number].get(key) == b"x"


def test_threads_of_a_client_share_messages_and_lose_nothing(service: Service) -> None:
    """Every commit is there once, at the epoch that its writer was told, and its writer reads it at once."""
    writers = Writers(service.store, 8, 20)
    writers.join()
    assert len(writers.told) == 160 == len(set(writers.told.values()))
    assert writers.rows() == writers.told
    assert b'tussock_meta_calls_total{code="OK",method="CommitEach"}' in service.platform.leader.metrics.render()


def test_commits_of_threads_survive_a_change_of_leader() -> None:
    """Messages that got no answer are repeated commit by commit at the new leader."""
    with Platform(f"memory://commits-{next(_names)}", replicas=2, picker=QUIET, leader_lease_seconds=0.5) as platform:
        writers = Writers(platform.connect(), 4, 40)
        eventually(lambda: len(writers.told) >= 20)
        platform.leader.stop(drain=False)
        writers.join()
        assert len(writers.told) == 160
        assert writers.rows() == writers.told


def test_another_ones_session_commits_nothing(service: Service) -> None:
    """As of `Commit`; `test_security.py` has it with tokens."""
    sessions = service.platform.leader.node.leadership
    assert sessions is not None
    sessions.sessions.get(SESSION).identity = "somebody else"
    assert isinstance(service.refusal(pb.CommitEachRequest(session_id=SESSION)), AccessDenied)
