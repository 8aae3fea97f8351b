"""What a leader keeps for its clients and a version for ever is bounded: past each bound there is a named error."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support.service.guarded_meta import GuardedMeta
from support.service.statuses import bare_status
from support.store.versions import spec
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.server import sessions
from tussock.meta.server.handlers import pins as pinning
from tussock.meta.server.status.document import LISTED_MAX, SessionStatus, shorten
from tussock.meta.version import bounds
from tussock.meta.version.version import Version
from tussock.statestore import connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.records import TableState
from tussock.statestore.errors import (
    InvalidOption,
    LimitReached,
    MessageTooLarge,
    SchemaMismatch,
    TussockError,
)

SESSION = "ab" * 16


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedMeta]:
    with GuardedMeta(tmp_path_factory.mktemp("bounds")) as service:
        yield service


def opening(session: str = SESSION, **fields: object) -> pb.OpenSessionRequest:
    return pb.OpenSessionRequest(session_id=session, **{"kind": pb.CLIENT, "name": "a", **fields})


def test_the_oldest_upload_is_the_id_of_an_sst(meta: GuardedMeta) -> None:
    """The leader keeps a writer's oldest upload, and gives it to vacuum."""
    writer = meta.caller("writer")
    for odd in ("x" * 32, "0" * 31, "0" * 100_000):
        with pytest.raises(InvalidOption, match="is no id of an SST"):
            writer.call("OpenSession", opening(oldest_upload=odd))
    writer.call("OpenSession", opening(oldest_upload="0" * 32))
    writer.call("CloseSession", pb.CloseSessionRequest(session_id=SESSION))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "x" * 256}, InvalidOption),
        ({"software": "x" * 256}, InvalidOption),
        ({"slots": 1025}, InvalidOption),
        ({"tasks": [pb.TaskProgress(task_id=str(number)) for number in range(1025)]}, InvalidOption),
        ({"tasks": [pb.TaskProgress(task_id="x" * 65)]}, InvalidOption),
        ({"name": "x" * (600 << 10)}, MessageTooLarge),
    ],
)
def test_the_records_of_a_session_are_bounded(
    meta: GuardedMeta, fields: dict[str, object], error: type[TussockError]
) -> None:
    """A reader's opening and heartbeats make the leader keep a few hundred bytes at most."""
    reader = meta.caller("reader")
    with pytest.raises(error):
        reader.call("OpenSession", opening(**fields))
    reader.call("OpenSession", opening())
    of_beats = {name: value for name, value in fields.items() if name in ("oldest_upload", "slots", "tasks")}
    if of_beats:
        with pytest.raises(error):
            reader.call("Heartbeat", pb.HeartbeatRequest(session_id=SESSION, **of_beats))
    reader.call("CloseSession", pb.CloseSessionRequest(session_id=SESSION))


@pytest.mark.slow
def test_one_identity_cannot_take_all_sessions(meta: GuardedMeta) -> None:
    """Three identities cannot, either: the others still find room, and a status stays small."""
    opened: dict[str, list[str]] = {}

    def fill(role: str) -> None:
        caller = meta.caller(role)
        for number in range(sessions.SESSIONS_MAX):
            session_id = f"{len(opened)}{number:031x}"
            caller.call("OpenSession", opening(session_id, name="x" * 255, software="x" * 255))
            opened[role].append(session_id)

    # More of the second and fewer of the third in the first lease of a leader.
    for role, least, most in (("reader", 1500, 1500), ("compactor", 375, 436), ("writer", 48, 94)):
        opened[role] = []
        with pytest.raises(LimitReached, match="as are free: close stores") as raised:
            fill(role)
        assert least <= len(opened[role]) <= most
        assert raised.value.args[2] == len(opened[role])
    assert len(meta.caller("reader").send_bytes("GetStatus", b"")) < 1 << 20
    with meta.connect("admin") as store:
        assert store.tables() == []
    for role, session_ids in opened.items():
        for session_id in session_ids:
            meta.caller(role).call("CloseSession", pb.CloseSessionRequest(session_id=session_id))


def test_a_change_of_leader_loses_no_session_by_the_order_of_coming_back() -> None:
    """Of one identity 1,500 were open and of another 375, which come back first; later the rule holds again."""
    clock = Clock()
    found = sessions.Sessions(clock, 20.0)
    for identity, count in (("b", 375), ("a", 1500)):
        for number in range(count):
            found.open(opening(f"{identity}{number:031x}"), identity)
    assert len(found.all()) == 1875
    with pytest.raises(LimitReached):
        found.open(opening("c" * 32), "a")
    found.open(opening("d" * 32), "d")

    clock.seconds += 21.0
    later = sessions.Sessions(clock, 20.0)
    clock.seconds += 21.0
    for number in range(375):
        later.open(opening(f"b{number:031x}"), "b")
    for number in range(1219):
        later.open(opening(f"a{number:031x}"), "a")
    with pytest.raises(LimitReached, match="1219 of them of 'a'"):
        later.open(opening("e" * 32), "a")


class Clock(RealSystem):
    """Time that stands still but for what a test adds."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.slow
def test_the_pins_of_a_session_are_bounded(meta: GuardedMeta) -> None:
    """The leader writes the object of each pin anew all the time."""
    reader = meta.caller("reader")
    reader.call("OpenSession", opening())
    for number in range(pinning.SESSION_PINS_MAX):
        reader.call("Heartbeat", pb.HeartbeatRequest(session_id=SESSION))
        reader.call("Pin", pb.PinRequest(session_id=SESSION, token=f"{number:016x}"))
    with pytest.raises(LimitReached, match="close snapshots that are read no more"):
        reader.call("Pin", pb.PinRequest(session_id=SESSION, token="f" * 16))
    reader.call("CloseSession", pb.CloseSessionRequest(session_id=SESSION))
    assert list(reader.call("ListPins", pb.ListPinsRequest()).pins) == []


def test_a_status_shows_a_bounded_number_of_pins_and_sessions() -> None:
    """The status has the number of the others."""
    one = SessionStatus(
        id="x", kind="client", name="", software="", slots=0, tasks=0, pins=0, heartbeat_age_ms=0, lease_ms=1
    )
    short = shorten(bare_status(sessions=(one,) * (LISTED_MAX + 7)))
    assert (len(short.sessions), short.left_out) == (LISTED_MAX, {"sessions": 7})


SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False)]).serialize().to_pybytes()


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (pb.TableSpec(name=""), InvalidOption),
        (pb.TableSpec(name="x" * 256, block_bytes=1 << 16, compression="lz4"), InvalidOption),
        (pb.TableSpec(name="t", block_bytes=2**64 - 1, compression="lz4"), InvalidOption),
        (pb.TableSpec(name="t", block_bytes=1 << 16, compression="zip"), InvalidOption),
        (pb.TableSpec(name="t", schema=b"x", block_bytes=1 << 16, compression="lz4"), SchemaMismatch),
        (pb.TableSpec(name="t", schema=SCHEMA, block_bytes=1 << 16, compression="lz4", vnodes=3), InvalidOption),
        (pb.TableSpec(name="t", schema=b"x" * (2 << 20), block_bytes=1 << 16, compression="lz4"), MessageTooLarge),
    ],
)
def test_a_table_that_no_client_could_make_is_refused(
    meta: GuardedMeta, made: pb.TableSpec, error: type[TussockError]
) -> None:
    """The catalog is in every version, which every client and compactor has to read."""
    writer = meta.caller("writer")
    with pytest.raises(error):
        writer.call("CreateTable", pb.CreateTableRequest(spec=made))


@pytest.mark.parametrize(
    ("method", "made", "error"),
    [
        ("OpenWriter", pb.OpenWriterRequest(writer="x" * 1025), InvalidOption),
        ("Commit", pb.CommitRequest(session_id=SESSION, epoch=1, writer="x" * 1025, batch_id=1), InvalidOption),
        ("Commit", pb.CommitRequest(session_id=SESSION, epoch=1, writer="x", batch_id=-1), InvalidOption),
        (
            "Commit",
            pb.CommitRequest(
                session_id=SESSION,
                epoch=1,
                tables=[pb.TableRuns(table_id=1, runs=[pb.Run(ssts=[pb.SstInfo()] * 20_000)])],
            ),
            MessageTooLarge,
        ),
        (
            "JoinCheckpoint",
            pb.JoinCheckpointRequest(session_id=SESSION, job="j", participant="p", incarnation="i", participants=2**31),
            InvalidOption,
        ),
        (
            "JoinCheckpoint",
            pb.JoinCheckpointRequest(
                session_id=SESSION, job="j", participant="p", incarnation="i", participants=1, interval_ms=2**63
            ),
            InvalidOption,
        ),
        ("OpenSession", opening(retention_ms=2**64 - 1), InvalidOption),
    ],
)
def test_names_and_counts_of_a_writer_are_bounded(
    meta: GuardedMeta, method: str, made: object, error: type[TussockError]
) -> None:
    """Names, numbers, and requests of only empty records."""
    writer = meta.caller("writer")
    writer.call("OpenSession", opening())
    with pytest.raises(error):
        writer.call(method, made)
    writer.call("CloseSession", pb.CloseSessionRequest(session_id=SESSION))


def test_the_tables_and_writers_of_a_store_are_bounded() -> None:
    """The existing ones stay usable."""
    version = Version(generations={str(number): 1 for number in range(bounds.WRITERS_MAX)})
    bounds.check_new_writer(version, "7")
    bounds.check_new_writer(version, None)
    with pytest.raises(LimitReached, match="give a stream one name"):
        bounds.check_new_writer(version, "new")
    full = Version(tables={1: TableState(spec=spec())})
    bounds.check_new_table(full, spec("other", 2))
    with pytest.raises(LimitReached, match="keeps 1; drop some"):
        bounds.check_new_table(full, spec("other", 2), tables_max=1)


def test_an_altered_table_counts_with_its_new_schema(tmp_path: Path) -> None:
    """Else a writer adds columns to many small tables; what changes nothing is no more than before."""
    with connect(tmp_path.as_uri()) as store:
        third = bounds.CATALOG_BYTES_MAX // 3 - 10_000
        schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v" * third, pa.int8())])
        for name in ("a", "b", "gone"):
            store.create_table(name, schema=schema, primary_key=["k"])
        store.drop_table("gone")
        with pytest.raises(LimitReached, match=r"table 'a' was not altered: .* keeps [0-9]+; drop some tables"):
            store.alter_table("a", add={"w" * 30_000: pa.int64()})
        assert store.table("a").schema == schema
        store.alter_table("a", widen={"k": pa.int64()})
        store.alter_table("b", add={"w": pa.int8()})
        assert store.table("b").schema.names[2:] == ["w"]


def test_errors_show_a_refused_request_shortened(meta: GuardedMeta) -> None:
    """An error travels in metadata, of which gRPC accepts 8 KiB; a longer one would arrive as another error."""
    with pytest.raises(TussockError) as raised:
        meta.caller("writer").call("DropTable", pb.DropTableRequest(name="\U0001f600" * 15_000))
    assert type(raised.value).__name__ == "TableNotFound"
    assert len(str(raised.value)) < 2048
