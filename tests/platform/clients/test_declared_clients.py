"""Declared clients at a real service: tables, rates, and the end of sessions and streams when a client is shut out."""

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from support.network.certificates import Authority
from support.service.meta_process import MetaProcess
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.errors import ERROR_METADATA, decode_error
from tussock.meta.rpc.methods import METHODS
from tussock.statestore import StateStore, connect
from tussock.statestore.errors import AccessDenied, RateLimited, TussockError, Unauthenticated

SECRETS = {name: f"tussock_{name}" for name in ("boss", "importer", "slow", "guest")}
SHUT_OUT_SECONDS_MAX = 2.5
"""Two seconds as documented, and the time of a call on a busy machine."""


def entry(name: str, role: str, *lines: str) -> str:
    digest = hashlib.sha256(SECRETS[name].encode()).hexdigest()
    return "\n".join([f"[clients.{name}]", f'role = "{role}"', f'tokens = ["sha256:{digest}"]', *lines]) + "\n"


BOSS = entry("boss", "admin")
IMPORTER = entry("importer", "writer", 'tables = ["orders", "clicks_*"]')
GUEST = entry("guest", "reader")


class Service:
    """A service and its clients file."""

    def __init__(self, folder: Path, text: str) -> None:
        self.file = folder / "clients.toml"
        self.file.write_text(text)
        self.process = MetaProcess((folder / "store").as_uri(), "--clients.file", str(self.file))
        self.process.wait_until_it_leads()

    def connect(self, name: str) -> StateStore:
        return connect(self.process.url, token=SECRETS[name], deadline=5.0)

    @contextlib.contextmanager
    def channel(self, name: str) -> Iterator[Callable[..., object]]:
        """Calls a method as that client, with no client of Tussock in between."""
        metadata = [("tussock-protocol", "1"), ("authorization", f"Bearer {SECRETS[name]}")]
        with grpc.insecure_channel(self.process.address) as channel:

            def call(method: str, request: object) -> object:
                described = METHODS[method]
                stub = channel.unary_unary(
                    described.path, described.request.SerializeToString, described.response.FromString
                )
                return stub(request, timeout=30, metadata=metadata)

            def subscribe(request: pb.SubscribeRequest) -> object:
                stub = channel.unary_stream(METHODS["Subscribe"].path, pb.SubscribeRequest.SerializeToString)
                return stub(request, timeout=60, metadata=metadata)

            yield lambda method, request: subscribe(request) if method == "Subscribe" else call(method, request)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path, BOSS + IMPORTER + GUEST)
    with made.process:
        yield made


def error_of(raised: pytest.ExceptionInfo[grpc.RpcError]) -> TussockError:
    return decode_error(dict(raised.value.trailing_metadata())[ERROR_METADATA])


def rows(*keys: bytes) -> list[pa.RecordBatch]:
    return [pa.record_batch({"key": list(keys), "value": list(keys)})]


def write(store: StateStore, *tables: str) -> int:
    """One commit to all of these tables."""
    epoch = store.new_epoch()
    for table in tables:
        for batch in rows(b"a"):
            store.table(table).ingest_batch(batch, epoch)
    try:
        return store.commit_epoch(epoch)
    except AccessDenied:
        store.abort_epoch(epoch)
        raise


def test_a_writer_writes_its_tables_and_no_others(service: Service) -> None:
    """Creating, committing, altering, dropping and compacting; a commit that also touches another table is none."""
    with service.connect("boss") as boss, service.connect("importer") as importer:
        boss.create_table("secrets")
        importer.create_table("orders")
        importer.create_table("clicks_eu")
        write(importer, "orders", "clicks_eu")
        before = boss.committed_epoch
        refused: list[Callable[[], object]] = [
            lambda: importer.create_table("others"),
            lambda: write(importer, "secrets"),
            lambda: write(importer, "orders", "secrets"),
            lambda: importer.drop_table("secrets"),
            lambda: importer.compact("secrets"),
        ]
        for call in refused:
            with pytest.raises(AccessDenied, match=r"'client:importer' may not write table '(secrets|others)'"):
                call()
        boss.wait_epoch(before)
        assert boss.committed_epoch == before
        assert sorted(boss.tables()) == ["clicks_eu", "orders", "secrets"]
        write(importer, "orders")


def test_commits_that_go_together_are_refused_one_by_one(service: Service) -> None:
    """The one to another table takes none of the others along."""
    with service.connect("boss") as boss, service.channel("importer") as call:
        session = "0123456789abcdef" * 2
        boss.create_table("orders")
        boss.create_table("secrets")
        ids = {state.spec.name: table for table, state in boss.version().tables.items()}
        call("OpenSession", pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="raw"))
        commits = [
            pb.CommitRequest(epoch=number + 7, tables=[pb.TableRuns(table_id=ids[name])], writer=name, batch_id=1)
            for number, name in enumerate(("orders", "secrets"))
        ]
        answer = call("CommitEach", pb.CommitEachRequest(session_id=session, commits=commits))
        assert isinstance(answer, pb.CommitEachResponse)
        assert [bool(one.epoch) for one in answer.commits] == [True, False]
        assert answer.commits[1].refused == "AccessDenied"
        barrier = pb.CollectBarrierRequest(
            session_id=session, job="j", participant="p", tables=[pb.TableRuns(table_id=ids["secrets"])]
        )
        with pytest.raises(grpc.RpcError) as raised:
            call("CollectBarrier", barrier)
        assert isinstance(error_of(raised), AccessDenied)
        alter = pb.AlterTableRequest(name="secrets")
        with pytest.raises(grpc.RpcError) as raised:
            call("AlterTable", alter)
        assert "'secrets'" in str(error_of(raised))


def test_a_client_over_its_rate_is_told_when_to_try_again(service: Service) -> None:
    """Others are not slowed down by it, and its heartbeats go on; Tussock's own client waits by itself."""
    service.file.write_text(BOSS + entry("slow", "reader", "rate = 2"))
    service.process.wait_for(event="files were read again")
    session = "0123456789abcdef" * 2
    with service.channel("slow") as slow, service.channel("boss") as boss:
        opening = pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="raw")
        slow("OpenSession", opening)
        with pytest.raises(grpc.RpcError) as raised:
            [slow("ListPins", pb.ListPinsRequest()) for _ in range(20)]
        error = error_of(raised)
        assert isinstance(error, RateLimited)
        assert 0 < error.args[1] <= 500
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        slow("Heartbeat", pb.HeartbeatRequest(session_id=session))
        for _ in range(20):
            boss("ListPins", pb.ListPinsRequest())
    with service.connect("slow") as store:
        assert [len(store.tables()) for _ in range(6)] == [0] * 6


@pytest.mark.parametrize("how", ["taken out", "revoked", "expired"])
def test_a_client_is_shut_out_with_its_sessions_and_streams(service: Service, how: str) -> None:
    """Within about two seconds of the change of the file: its stream ends, and its next call is refused."""
    session = "0123456789abcdef" * 2
    with service.channel("guest") as guest, service.connect("boss") as boss:
        guest("OpenSession", pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="raw"))
        stream = guest("Subscribe", pb.SubscribeRequest(session_id=session))
        ended = threading.Event()
        told: list[bytes] = []

        def listen() -> None:
            with contextlib.suppress(grpc.RpcError):
                told.extend(stream)
            ended.set()

        threading.Thread(target=listen, daemon=True).start()
        boss.create_table("kv")
        guest("Pin", pb.PinRequest(session_id=session, token="ab" * 8))
        assert len(boss.pins()) == 1
        text = {
            "taken out": BOSS,
            "revoked": BOSS + GUEST + "revoked = true\n",
            "expired": BOSS + GUEST + "expires = 2020-01-01T00:00:00Z\n",
        }[how]
        began = time.monotonic()
        service.file.write_text(text)
        assert ended.wait(30)
        assert time.monotonic() - began < SHUT_OUT_SECONDS_MAX
        assert "'guest'" in pb.Event.FromString(told[-1]).closing.reason
        with pytest.raises(grpc.RpcError) as raised:
            guest("Heartbeat", pb.HeartbeatRequest(session_id=session))
        assert isinstance(error_of(raised), Unauthenticated)
        assert not boss.pins()
        service.process.wait_for(event="session ended", caller="client:guest")
        # Everybody else goes on.
        boss.create_table("kw")


def test_a_client_may_be_known_by_its_certificate(tmp_path: Path) -> None:
    """Where the service asks for certificates and has no other rule; any other certificate of the CA has no role."""
    authority = Authority(tmp_path)
    server, known, other = authority.sign("meta"), authority.sign("ann"), authority.sign("bob")
    (tmp_path / "c").write_text('[clients.analyst]\nrole = "writer"\ncertificates = ["CN:ann"]\n')
    tls = ["--tls.certificate", str(server.certificate), "--tls.key", str(server.key)]
    tls += ["--tls.client-ca", str(authority.certificate), "--clients.file", str(tmp_path / "c")]
    with MetaProcess((tmp_path / "store").as_uri(), *tls) as process:
        process.wait_until_it_leads()
        ca = str(authority.certificate)
        with connect(process.url, tls_ca=ca, tls_cert=str(known.certificate), tls_key=str(known.key)) as store:
            store.create_table("kv")
        process.wait_for(event="session opened")
        with pytest.raises(AccessDenied, match="'bob' has no role"):
            connect(process.url, tls_ca=ca, tls_cert=str(other.certificate), tls_key=str(other.key))


def test_a_damaged_file_is_told_by_the_status(service: Service) -> None:
    """The clients of before are let in, and the problem goes away with the damage."""
    with service.channel("boss") as boss:

        def problems() -> list[str]:
            answer = boss("GetStatus", pb.GetStatusRequest())
            assert isinstance(answer, pb.GetStatusResponse)
            return [one["text"] for one in json.loads(answer.status)["problems"] if one["kind"] == "clients-file"]

        assert problems() == []
        service.file.write_text("[clients.boss\n")
        service.process.wait_for(event="changed files cannot be used, the former stay in force")
        (told,) = problems()
        assert str(service.file) in told
        assert "is not TOML" in told
        service.file.write_text(BOSS)
        service.process.wait_for(event="files were read again")
        assert problems() == []


def test_a_service_does_not_start_with_a_damaged_file(tmp_path: Path) -> None:
    """There is no former content to use; the error names option, file and place."""
    (tmp_path / "c").write_text("[clients.a]\nrole = 'reader'\n")
    with MetaProcess((tmp_path / "store").as_uri(), "--clients.file", str(tmp_path / "c")) as process:
        assert process.wait() != 0
        assert any("clients.file" in line and "clients.a: nobody is known by it" in line for line in process.raw)
