"""Bad input over gRPC, as a client in another language might send it: a status, a named error, and no change.

What a caller may do is in `test_security.py`, how large a message may be in `test_limits.py`.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import grpc
import msgspec
import pyarrow as pa
import pytest
from google.protobuf.message import Message

from support.service.platforms import QUIET, Platform
from tussock.meta.log.log import VersionLog
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import sst_to_message
from tussock.meta.rpc.errors import ERROR_METADATA, decode_error
from tussock.meta.rpc.methods import METHODS
from tussock.meta.version.deltas.retention import AdvanceHorizon
from tussock.statestore import errors
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import SstInfo, data_object, data_path
from tussock.statestore.write.sst_ids import new_sst_id
from tussock.statestore.write.writes import UNCOMMITTED_EPOCH

_names = count(1)

SESSION = "0123456789abcdef" * 2
PROTOCOL = (("tussock-protocol", "1"),)


class Service(NamedTuple):
    """A platform, a raw channel to its leader with an open session, and a store that shows its state."""

    platform: Platform
    channel: grpc.Channel
    store: StateStore

    def call(self, method: str, request: Message, metadata: tuple[tuple[str, str], ...] = PROTOCOL) -> Message:
        """One call, as bytes on the wire."""
        described = METHODS[method]
        stub = self.channel.unary_unary(
            described.path, described.request.SerializeToString, described.response.FromString
        )
        return stub(request, timeout=60, metadata=metadata)

    def refusal(self, method: str, request: Message, metadata: tuple[tuple[str, str], ...] = PROTOCOL):
        """(status, error) of a call that has to fail and leave the version as it was."""
        node = self.platform.leader.node
        before = node.meta.refresh()
        with pytest.raises(grpc.RpcError) as raised:
            self.call(method, request, metadata)
        after = node.meta.refresh()
        assert (after.seq, after) == (before.seq, before)
        details = dict(raised.value.trailing_metadata())
        return raised.value.code(), decode_error(details[ERROR_METADATA])


@pytest.fixture
def service() -> Iterator[Service]:
    with (
        Platform(f"memory://bad-calls-{next(_names)}", picker=QUIET) as platform,
        grpc.insecure_channel(platform.leader.address) as channel,
    ):
        store = platform.connect(gc_grace=0)
        store.create_table("kv")
        made = Service(platform, channel, store)
        made.call("OpenSession", pb.OpenSessionRequest(session_id=SESSION, kind=pb.CLIENT, name="raw"))
        yield made


def upload(service: Service) -> SstInfo:
    """An SST of the table `kv`, in the bucket and not committed."""
    (run,) = service.store.table("kv").upload([pa.record_batch({"key": [b"a", b"b"], "value": [b"1", b"2"]})])
    sst: SstInfo = run.ssts[0]
    return sst


def commit_of(sst: SstInfo, **changes: object) -> pb.CommitRequest:
    """A commit that names one SST in table 1."""
    runs = [pb.Run(ssts=[sst_to_message(sst)])]
    return pb.CommitRequest(session_id=SESSION, epoch=7, tables=[pb.TableRuns(table_id=1, runs=runs)], **changes)


def test_a_right_commit_succeeds(service: Service) -> None:
    """The refusals below rest on this: the same commit, with nothing wrong, succeeds."""
    answer = service.call("Commit", commit_of(upload(service)))
    assert answer.epoch == 7
    service.store.wait_epoch(7)
    assert service.store.table("kv").get(b"a") == b"1"


def test_a_commit_to_an_unknown_table_is_refused(service: Service) -> None:
    sst = upload(service)
    request = commit_of(sst)
    request.tables[0].table_id = 99
    code, error = service.refusal("Commit", request)
    assert (code, type(error)) == (grpc.StatusCode.NOT_FOUND, errors.TableNotFound)
    for method, wrong in (("DropTable", pb.DropTableRequest(name="no")), ("Compact", pb.CompactRequest(table="no"))):
        code, error = service.refusal(method, wrong)
        assert (code, type(error)) == (grpc.StatusCode.NOT_FOUND, errors.TableNotFound), method
        assert "'no'" in str(error)


def test_an_impossible_alteration_is_refused(service: Service) -> None:
    """Bytes that are no schema, an unknown table, a raw one, and columns that no row could have."""
    columns = pa.schema([("note", pa.string())]).serialize().to_pybytes()
    for request, status, kind, words in (
        (pb.AlterTableRequest(name="kv", add=b"junk"), grpc.StatusCode.INVALID_ARGUMENT, errors.SchemaMismatch, "IPC"),
        (pb.AlterTableRequest(name="no", add=columns), grpc.StatusCode.NOT_FOUND, errors.TableNotFound, "'no'"),
        (pb.AlterTableRequest(name="kv", widen=columns), grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidOption, "raw"),
    ):
        code, error = service.refusal("AlterTable", request)
        assert (code, type(error)) == (status, kind)
        assert words in str(error)


def _missing(service: Service, sst: SstInfo) -> SstInfo:
    return msgspec.structs.replace(sst, id=new_sst_id(service.platform.leader.system))


def _cut(service: Service, sst: SstInfo) -> SstInfo:
    bucket = service.platform.leader.bucket
    bucket.put(data_path(sst.id), bucket.get(data_path(sst.id))[:-1])
    return sst


def _damage(service: Service, sst: SstInfo) -> SstInfo:
    bucket = service.platform.leader.bucket
    data = bytearray(bucket.get(data_path(sst.id)))
    data[sst.data_bytes // 2] ^= 1
    bucket.put(data_path(sst.id), bytes(data))
    return sst


def _damaged_meta(service: Service, sst: SstInfo) -> SstInfo:
    bucket = service.platform.leader.bucket
    data = bytearray(bucket.get(data_path(sst.id)))
    data[sst.data_bytes + sst.meta_bytes // 2] ^= 1
    bucket.put(data_path(sst.id), bytes(data))
    return sst


def _no_sst(service: Service, sst: SstInfo) -> SstInfo:
    service.platform.leader.bucket.put(data_path(sst.id), b"x" * (sst.data_bytes + sst.meta_bytes))
    return sst


def _lied_about(_: Service, sst: SstInfo) -> SstInfo:
    return msgspec.structs.replace(sst, largest=b"zzz")


def _elsewhere(_: Service, sst: SstInfo) -> SstInfo:
    return msgspec.structs.replace(sst, source="memory://another")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_missing, "there is no object"),
        (_cut, "not whole"),
        (_damage, "block 0"),
        (_damaged_meta, "checksum mismatch"),
        (_no_sst, "not an SST's meta"),
        (_lied_about, "the commit says"),
        (_elsewhere, "memory://another"),
    ],
)
def test_commit_of_a_wrong_sst_is_refused(
    service: Service, spoil: Callable[[Service, SstInfo], SstInfo], says: str
) -> None:
    """Missing, damaged in any part, foreign: refused with the SST's name."""
    sst = spoil(service, upload(service))
    code, error = service.refusal("Commit", commit_of(sst))
    assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidBatch)
    assert says in str(error)
    assert sst.id in str(error)


def test_commit_of_an_sst_of_another_table_is_refused(service: Service) -> None:
    """The table has other columns."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    typed = service.store.create_table("typed", schema=schema, primary_key=["id"])
    (level,) = typed.upload(iter([pa.table({"id": [1], "name": ["x"]})]))
    code, error = service.refusal("Commit", commit_of(level.ssts[0]))
    assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidBatch)
    assert "another table's" in str(error)


def test_commit_of_an_sst_below_the_garbage_horizon_is_refused(service: Service) -> None:
    """Vacuum may have deleted it: the client uploads it again."""
    sst = upload(service)
    service.platform.leader.node.meta.log.append(_advance_horizon)
    code, error = service.refusal("Commit", commit_of(sst))
    assert (code, type(error)) == (grpc.StatusCode.FAILED_PRECONDITION, errors.StaleUpload)
    assert sst.id in str(error)


def _advance_horizon(_: object):
    return [AdvanceHorizon(horizon="f" * 32)], None


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"writer": "w"}, errors.InvalidOption),
        ({"batch_id": 1}, errors.InvalidOption),
        ({"epoch": 0}, errors.InvalidBatch),
        ({"epoch": 1 << 63}, errors.InvalidBatch),
    ],
)
def test_commit_that_contradicts_itself_is_refused(service: Service, changes: dict[str, object], kind: type) -> None:
    request = commit_of(upload(service))
    for field, value in changes.items():
        setattr(request, field, value)
    code, error = service.refusal("Commit", request)
    assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, kind)


def test_commit_that_names_an_sst_twice_is_refused(service: Service) -> None:
    request = commit_of(upload(service))
    request.tables[0].runs.append(request.tables[0].runs[0])
    code, error = service.refusal("Commit", request)
    assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidBatch)


def test_commit_that_had_read_an_older_epoch_is_refused(service: Service) -> None:
    service.call("Commit", commit_of(upload(service)))
    code, error = service.refusal("Commit", commit_of(upload(service), expect={1: 3}))
    assert (code, type(error)) == (grpc.StatusCode.ABORTED, errors.Conflict)


def test_commit_of_a_replaced_writer_is_refused(service: Service) -> None:
    """The generation of the client that took the name over last counts."""
    first = service.call("OpenWriter", pb.OpenWriterRequest(writer="w")).generation
    service.call("OpenWriter", pb.OpenWriterRequest(writer="w"))
    request = commit_of(upload(service), writer="w", batch_id=1, generation=first)
    code, error = service.refusal("Commit", request)
    assert (code, type(error)) == (grpc.StatusCode.FAILED_PRECONDITION, errors.Fenced)


WITH_SESSION = [
    name
    for name, method in METHODS.items()
    if "session_id" in method.request.DESCRIPTOR.fields_by_name and name not in ("OpenSession", "Subscribe")
]


@pytest.mark.parametrize("session_id", ["f" * 32, ""], ids=["unknown", "none"])
@pytest.mark.parametrize("method", WITH_SESSION)
def test_unknown_session_is_refused(service: Service, method: str, session_id: str) -> None:
    """The same happens after a lapsed lease: the client has to open its session again, and needs one."""
    request = METHODS[method].request(session_id=session_id)
    code, error = service.refusal(method, request)
    assert (code, type(error)) == (grpc.StatusCode.FAILED_PRECONDITION, errors.SessionExpired)


@pytest.mark.parametrize("session_id", ["", "short", "G" * 32, "0" * 33])
def test_session_with_a_malformed_id_is_refused(service: Service, session_id: str) -> None:
    code, error = service.refusal("OpenSession", pb.OpenSessionRequest(session_id=session_id, kind=pb.CLIENT))
    assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidOption)


def test_second_compactor_of_the_same_name_is_refused(service: Service) -> None:
    request = pb.OpenSessionRequest(session_id="a" * 32, kind=pb.COMPACTOR, name="c1", slots=1)
    service.call("OpenSession", request)
    service.call("OpenSession", request)
    request.session_id = "b" * 32
    code, error = service.refusal("OpenSession", request)
    assert (code, type(error)) == (grpc.StatusCode.ALREADY_EXISTS, errors.DuplicateName)
    assert "'c1'" in str(error)


def test_report_for_a_task_that_was_taken_back_is_refused(service: Service) -> None:
    """The node that has the task now does the work; nothing of the late report gets into the version."""
    service.call("OpenSession", pb.OpenSessionRequest(session_id="a" * 32, kind=pb.COMPACTOR, name="c1", slots=1))
    request = pb.ReportTaskRequest(session_id="a" * 32, task_id="0" * 32, outputs=[sst_to_message(upload(service))])
    code, error = service.refusal("ReportTask", request)
    assert (code, type(error)) == (grpc.StatusCode.FAILED_PRECONDITION, errors.Fenced)
    assert "0" * 32 in str(error)


def test_pin_of_an_expired_or_future_epoch_is_refused(service: Service) -> None:
    request = pb.PinRequest(session_id=SESSION, epoch=1 << 60, token="0" * 16)
    code, error = service.refusal("Pin", request)
    assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidOption)
    request = pb.PinRequest(session_id=SESSION, token="../../x")
    code, error = service.refusal("Pin", request)
    assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidOption)


@pytest.mark.parametrize("spoken", [None, "2", "0", "one"])
def test_client_of_another_protocol_is_refused(service: Service, spoken: str | None) -> None:
    metadata = () if spoken is None else (("tussock-protocol", spoken),)
    code, error = service.refusal("GetVersion", pb.GetVersionRequest(), metadata)
    assert (code, type(error)) == (grpc.StatusCode.UNIMPLEMENTED, errors.ProtocolMismatch)
    assert "1" in str(error)


def test_call_to_a_follower_names_the_leader() -> None:
    """The error names the leader, and nothing changes."""
    with Platform("memory://stale-leader", replicas=2) as platform:
        (follower,) = (one for one in platform.replicas if one is not platform.leader)
        with grpc.insecure_channel(follower.address) as channel:
            service = Service(platform, channel, platform.connect())
            for method in sorted(METHODS.keys() - {"Subscribe", "GetStatus"}):
                code, error = service.refusal(method, METHODS[method].request())
                assert (code, type(error)) == (grpc.StatusCode.FAILED_PRECONDITION, errors.NotLeader), method
                assert error.args[1] == platform.leader.address


def test_bytes_that_are_no_message_are_refused(service: Service) -> None:
    """The refusal names the method, and the service goes on."""
    stub = service.channel.unary_unary(METHODS["Commit"].path)
    with pytest.raises(grpc.RpcError, match="Commit") as raised:
        stub(b"\xff\xff\xff", timeout=60, metadata=PROTOCOL)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    service.call("Heartbeat", pb.HeartbeatRequest(session_id=SESSION))


def test_unknown_method_is_refused(service: Service) -> None:
    stub = service.channel.unary_unary("/tussock.meta.v1.Meta/Nothing")
    with pytest.raises(grpc.RpcError) as raised:
        stub(b"", timeout=60, metadata=PROTOCOL)
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_uploaded_rows_stand_for_no_epoch_yet(service: Service) -> None:
    """Like a client, the helper above uploads rows whose epoch comes with the commit."""
    assert upload(service).epoch == UNCOMMITTED_EPOCH


def encode_sst(service: Service) -> tuple[SstInfo, bytes]:
    """An SST of the table `kv` that is not in the bucket, and its object."""
    sst = upload(service)
    bucket = service.platform.leader.bucket
    data = bucket.get(data_path(sst.id))
    bucket.delete([data_path(sst.id)])
    return sst, data


def test_small_sst_may_come_with_its_commit(service: Service) -> None:
    """It lies in the log entry; the same commit gets the same answer again."""
    sst, data = encode_sst(service)
    request = commit_of(sst, payloads={sst.id: data})
    assert [service.call("Commit", request).epoch for _ in range(2)] == [7, 7]
    (placed,) = service.platform.leader.node.meta.version().ssts()
    assert bytes(service.platform.leader.bucket.get_range(data_object(placed), placed.offset, len(data))) == data
    assert list(service.platform.leader.bucket.list("sst/")) == []


def test_a_client_cannot_set_the_place_of_an_sst(service: Service) -> None:
    """Neither for an SST in the request nor for one in an alleged older entry."""
    sst, data = encode_sst(service)
    service.call("Commit", commit_of(sst, payloads={sst.id: data}))
    (placed,) = service.platform.leader.node.meta.version().ssts()
    other, more = encode_sst(service)
    for changes in ({"entry": placed.entry, "offset": placed.offset}, {"entry": placed.entry + 1}, {"offset": 20}):
        named = msgspec.structs.replace(other, **changes)
        for payloads in ({other.id: more}, {}):
            code, error = service.refusal("Commit", commit_of(named, payloads=payloads))
            assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidBatch)
            assert "leader alone says" in str(error)


def test_damaged_or_swapped_payload_is_refused(service: Service) -> None:
    """Nothing of it reaches the bucket."""
    sst, data = encode_sst(service)
    spoilt = bytearray(data)
    spoilt[len(data) // 3] ^= 1
    other = new_sst_id(service.platform.leader.system)
    for request in (
        commit_of(sst, payloads={sst.id: bytes(spoilt)}),
        commit_of(sst, payloads={sst.id: data[:-1]}),
        commit_of(sst, payloads={sst.id: b""}),
        commit_of(msgspec.structs.replace(sst, id=other), payloads={other: data}),
        commit_of(msgspec.structs.replace(sst, id="../../pins/x"), payloads={"../../pins/x": data}),
    ):
        code, error = service.refusal("Commit", request)
        assert code == grpc.StatusCode.INVALID_ARGUMENT or type(error) is errors.StaleUpload
    assert [one.path for one in service.platform.leader.bucket.list("sst/")] == []


def test_payload_cannot_replace_an_existing_sst(service: Service) -> None:
    """The right to commit is no right to overwrite an SST that others have committed."""
    sst = upload(service)
    bucket = service.platform.leader.bucket
    there = bucket.get(data_path(sst.id))
    service.call("Commit", commit_of(sst))
    foreign, data = encode_sst(service)
    request = commit_of(msgspec.structs.replace(foreign, id=sst.id), payloads={sst.id: data})
    code, _ = service.refusal("Commit", request)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert bucket.get(data_path(sst.id)) == there


def test_commit_of_an_upload_below_a_new_horizon_is_refused(service: Service) -> None:
    """The leader has not read the new horizon yet; it reads the log before its answer, and the client uploads again."""
    sst = upload(service)
    bucket = service.platform.leader.bucket
    VersionLog(bucket, service.platform.leader.system, owner="another").append(_advance_horizon)
    bucket.delete([data_path(sst.id)])
    with pytest.raises(grpc.RpcError) as raised:
        service.call("Commit", commit_of(sst))
    error = decode_error(dict(raised.value.trailing_metadata())[ERROR_METADATA])
    assert (raised.value.code(), type(error)) == (grpc.StatusCode.FAILED_PRECONDITION, errors.StaleUpload)


def test_repeated_batch_whose_ssts_are_deleted_gets_its_epoch(service: Service) -> None:
    """It was committed, compacted and vacuumed: the answer is the first one's epoch."""
    sst = upload(service)
    request = commit_of(sst, writer="w", batch_id=1)
    assert service.call("Commit", request).epoch == 7
    service.platform.leader.bucket.delete([data_path(sst.id)])
    assert service.call("Commit", request).epoch == 7
