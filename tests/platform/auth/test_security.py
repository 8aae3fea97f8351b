"""Authentication and authorisation: pure rules first, then a real service that is called by clients of every kind."""

import itertools
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from support import inside
from support.network.certificates import Authority, Pair
from support.service.meta_process import MetaProcess
from support.store.versions import FakeSystem
from tussock.cli.main import main
from tussock.meta.node.auth.authentication import Authenticator, Presented
from tussock.meta.node.auth.certificates import CertificateRules, certificate_names
from tussock.meta.node.auth.tokens import ROLES, create_token, find_token, read_tokens
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.errors import ERROR_METADATA
from tussock.meta.rpc.methods import METHODS, Role
from tussock.statestore import StateStore, connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import (
    AccessDenied,
    InvalidOption,
    MessageTooLarge,
    MetaUnavailable,
    Unauthenticated,
)

SYSTEM = RealSystem()


# --- Tokens ----------------------------------------------------------------------------------------------------------


def test_only_the_hash_of_a_token_is_stored(tmp_path: Path) -> None:
    """The file has no secret, and gives the token's name and roles."""
    secret, line = create_token("spark", "writer,compactor", SYSTEM)
    file = tmp_path / "tokens"
    file.write_text(f"# jobs\n\n{line}  # made in March\n{create_token('ann', 'reader', SYSTEM)[1]}\n")
    tokens = read_tokens([str(file)])
    found = find_token(tokens, secret)
    assert secret not in file.read_text()
    assert found is not None
    assert (found.name, found.roles) == ("spark", Role.READER | Role.WRITER | Role.COMPACTOR)
    assert find_token(tokens, secret + "x") is None
    assert find_token(tokens, "") is None


def test_tokens_do_not_repeat() -> None:
    """Each has 256 random bits."""
    assert len({create_token("a", "reader", SYSTEM)[0] for _ in range(100)}) == 100
    assert len(create_token("a", "reader", SYSTEM)[0]) > 43


@pytest.mark.parametrize(
    "line", ["spark writer", "spark owner sha256:" + "0" * 64, "spark writer sha256:00", "s w x y"]
)
def test_malformed_line_of_tokens_is_reported_by_number_only(tmp_path: Path, line: str) -> None:
    """A user may have put the token itself there."""
    file = tmp_path / "tokens"
    file.write_text(f"# fine\n{line}\n")
    with pytest.raises(InvalidOption, match=r"tokens, line 2: should be NAME ROLES") as raised:
        read_tokens([str(file)])
    assert line not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "roles"), [("a b", "reader"), ("", "reader"), ("a", "boss"), ("a", ""), ("#a", "reader")]
)
def test_malformed_token_is_not_created(name: str, roles: str) -> None:
    """A name or role that could not be read back is not written."""
    with pytest.raises(InvalidOption):
        create_token(name, roles, SYSTEM)


# --- Certificates ----------------------------------------------------------------------------------------------------


def test_names_of_a_certificate_are_parsed() -> None:
    """As gRPC gives them: the subject is escaped by RFC 2253, and a comma in a name makes no second name."""
    told = {
        "x509_common_name": [b"worker,OU=admin"],
        "x509_subject": [b"CN=worker\\,OU=admin,OU=streams\\, eu+L=x,OU=caf\\C3\\A9,O=OU=no"],
        "peer_uri": [b"spiffe://prod/a"],
        "peer_dns": [b"w.example"],
    }
    assert certificate_names(told) == (
        "CN:worker,OU=admin",
        "OU:streams, eu",
        "OU:café",
        "URI:spiffe://prod/a",
        "DNS:w.example",
    )
    assert certificate_names({"transport_security_type": [b"ssl"]}) == ()


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("CN:worker", "CN:worker", True),
        ("CN:worker", "CN:worker-1", False),
        ("CN:worker-*", "CN:worker-1", True),
        ("CN:worker-*", "DNS:worker-1", False),
        ("CN:*worker", "CN:a-worker", False),
        ("URI:spiffe://prod/*", "URI:spiffe://prod/ns/a", True),
        ("CN:worker", "CN:Worker", False),
    ],
)
def test_pattern_has_to_match_the_whole_name(pattern: str, name: str, fits: bool) -> None:
    """A star stands at the end only; letters are compared exactly."""
    assert CertificateRules({"writer": [pattern]}).roles([name]) == (ROLES["writer"] if fits else Role(0))


@pytest.mark.parametrize(
    ("names", "identity"),
    [
        (["CN:tussock-writer", "URI:tussock://data/shop/writer"], "tussock://data/shop/writer"),
        (["CN:tussock-admin", "URI:tussock://data/shop/writer"], "tussock://data/shop/writer"),
        (["CN:ops", "URI:spiffe://prod/ops"], "ops"),
        (["CN:nobody", "URI:spiffe://prod/x"], "nobody"),
    ],
)
def test_a_caller_is_identified_by_the_uri_that_gives_it_a_role(names: list[str], identity: str) -> None:
    """Not by a common name, which an issuer may have signed for anybody; without such a URI the first name counts."""
    rules = {"writer": ["URI:tussock://data/shop/writer", "CN:tussock-writer"], "admin": ["CN:ops"]}
    authenticator = Authenticator(SYSTEM, certificates_required=True, certificate_roles=rules)
    assert authenticator.authenticate(Presented(None, names)).identity == identity


@pytest.mark.parametrize("pattern", ["worker", "EMAIL:a", "CN:", "CN:*", "cn:a"])
def test_malformed_pattern_is_refused(pattern: str) -> None:
    """Also one that would let in every client of the CA."""
    with pytest.raises(InvalidOption, match=r"tls\.roles\.admin"):
        CertificateRules({"admin": [pattern]})


@pytest.mark.parametrize(("of_token", "of_certificate"), list(itertools.product(ROLES, ROLES)))
def test_with_token_and_certificate_a_caller_has_the_roles_of_both(
    tmp_path: Path, of_token: str, of_certificate: str
) -> None:
    """Token and certificate together give only the roles that both have."""
    secret, line = create_token("t", of_token, SYSTEM)
    (tmp_path / "tokens").write_text(line)
    authenticator = Authenticator(
        FakeSystem(),
        tokens_file=str(tmp_path / "tokens"),
        certificates_required=True,
        certificate_roles={of_certificate: ["CN:c"]},
    )
    caller = authenticator.authenticate(Presented(f"Bearer {secret}", ["CN:c"]))
    assert (caller.identity, caller.roles) == ("t", ROLES[of_token] & ROLES[of_certificate])
    stranger = authenticator.authenticate(Presented(f"bearer {secret}", ["CN:other"]))
    assert stranger.roles == Role(0)


def test_records_of_credentials_do_not_print_secrets() -> None:
    """Internal records cannot end up in a log by accident."""
    assert "s3cret" not in repr(Presented("Bearer s3cret", []))


# --- A real service --------------------------------------------------------------------------------------------------


class GuardedService(NamedTuple):
    """A service with TLS, certificates of clients and tokens, and the credentials of its callers."""

    process: MetaProcess
    authority: Authority
    tokens: dict[str, str]
    pair: Pair

    def connect(self, token: str, **options: float) -> StateStore:
        given = {
            "tls_ca": str(self.authority.certificate),
            "tls_cert": str(self.pair.certificate),
            "tls_key": str(self.pair.key),
        }
        return connect(
            self.process.url, token=self.tokens.get(token or "", token or ""), deadline=3.0, **given, **options
        )

    def channel(self) -> grpc.Channel:
        return grpc.secure_channel(
            self.process.address,
            grpc.ssl_channel_credentials(
                self.authority.certificate.read_bytes(), self.pair.key.read_bytes(), self.pair.certificate.read_bytes()
            ),
        )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedService]:
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority(folder)
    server, client = authority.sign("meta-0"), authority.sign("worker-1")
    tokens, lines = {}, []
    for role in ROLES:
        tokens[role], line = create_token(f"the-{role}", role, SYSTEM)
        lines.append(line)
    (folder / "tokens").write_text("\n".join(lines))
    (folder / "meta.toml").write_text(
        f'[tls]\ncertificate = "{server.certificate}"\nkey = "{server.key}"\nclient_ca = "{authority.certificate}"\n'
        f'[tls.roles]\nadmin = ["CN:worker-*"]\n[tokens]\nfile = "{folder / "tokens"}"\n[log]\nlevel = "debug"'
    )
    with MetaProcess((folder / "store").as_uri(), "--config", str(folder / "meta.toml")) as process:
        yield GuardedService(process.wait_until_it_leads(), authority, tokens, client)
        process.terminate()
        assert process.wait() == 0
        # Of everything that this module did, at the most talkative level.
        log = "\n".join(process.raw)
        for secret in (*tokens.values(), "tussock_wrong"):
            assert secret not in log
        assert [line[-300:] for line in process.raw if "Traceback" in line or not line.startswith("{")] == []


def call(
    channel: grpc.Channel, method: str, token: str | None, request: bytes = b"", **metadata: str
) -> grpc.StatusCode:
    """The status with which a bare call ends; OK if it succeeds."""
    sent = [("tussock-protocol", "1"), *((key.replace("_", "-"), value) for key, value in metadata.items())]
    if token is not None:
        sent.append(("authorization", f"Bearer {token}"))
    try:
        if METHODS[method].streams:
            next(iter(channel.unary_stream(METHODS[method].path)(request, metadata=sent, timeout=20)))
        else:
            channel.unary_unary(METHODS[method].path)(request, metadata=sent, timeout=20)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("role", ROLES)
def test_each_method_is_refused_to_all_but_its_roles(service: GuardedService, role: str) -> None:
    """Every method, called by every role with an empty request: refused exactly where the table says so."""
    with service.channel() as channel:
        denied = {
            name for name in METHODS if call(channel, name, service.tokens[role]) == grpc.StatusCode.PERMISSION_DENIED
        }
    assert denied == {name for name, method in METHODS.items() if not method.roles & ROLES[role]}


def test_table_of_roles_is_the_intended_one() -> None:
    """It is written out once more, so that a slip in the table of methods does not test itself."""
    reader = {"OpenSession", "Heartbeat", "CloseSession", "Subscribe", "GetCredentials", "GetVersion", "Pin", "Unpin"}
    reader |= {"ListPins", "ListBackups", "GetStatus"}
    writer = {"CreateTable", "AlterTable", "DropTable", "AllocateEpoch", "OpenWriter", "Commit", "CommitEach"}
    writer |= {"Compact", "JoinCheckpoint", "CollectBarrier", "LeaveCheckpoint"}
    compactor = {"ReportTask", "ReturnTask"}
    admin = {"ForgetWriters", "PauseCompaction", "Vacuum", "CreateBackup", "DeleteBackup", "HandOver"}
    expected = {"reader": reader, "writer": reader | writer, "compactor": reader | compactor}
    expected["admin"] = reader | writer | compactor | admin
    for role, allowed in expected.items():
        assert {name for name, method in METHODS.items() if method.roles & ROLES[role]} == allowed, role


@pytest.mark.parametrize("token", [None, "", "tussock_wrong", "x y", "x" * 5000])
def test_unknown_token_is_refused(service: GuardedService, token: str | None) -> None:
    """Without a token, with an unknown one, and with malformed ones: all are refused, nothing breaks."""
    with service.channel() as channel:
        assert call(channel, "GetStatus", token) == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("value", ["", "Bearer", "Basic eDp5", "bearer"])
def test_other_schemes_are_refused(service: GuardedService, value: str) -> None:
    """Only `Bearer` and a token are understood."""
    with service.channel() as channel:
        assert call(channel, "GetStatus", None, authorization=value) == grpc.StatusCode.UNAUTHENTICATED


def test_client_without_certificate_gets_no_connection(service: GuardedService) -> None:
    """TLS ends before any call is read, and the client's error names the service."""
    with pytest.raises(MetaUnavailable, match=service.process.address):
        connect(
            service.process.url,
            token=service.tokens["admin"],
            tls_ca=str(service.authority.certificate),
            deadline=1.0,
        )


def test_certificate_of_another_authority_gets_no_connection(service: GuardedService, tmp_path: Path) -> None:
    """A CA of the same name is another CA."""
    other = Authority(tmp_path, "ca")
    pair = other.sign("worker-1")
    with pytest.raises(MetaUnavailable):
        service._replace(pair=pair).connect("admin")
    with pytest.raises(MetaUnavailable):
        service._replace(authority=other).connect("admin")


def test_certificate_without_a_role_leaves_the_token_none(service: GuardedService) -> None:
    """The token alone would be an administrator's."""
    pair = service.authority.sign("stranger")
    with pytest.raises(AccessDenied, match="'the-admin' has no role, and"):
        service._replace(pair=pair).connect("admin")


def test_client_gets_typed_errors(service: GuardedService) -> None:
    """Tussock's client raises the classes, and a refused call changes nothing."""
    with pytest.raises(Unauthenticated, match="not known here"):
        service.connect("tussock_wrong")
    with service.connect("writer") as writer, service.connect("reader") as reader:
        kv = writer.create_table("kv")
        epoch = writer.new_epoch()
        kv.ingest_batch([(b"a", b"1")], epoch)
        writer.commit_epoch(epoch)
        reader.wait_epoch(writer.committed_epoch, timeout=20)
        assert reader.table("kv").get(b"a") == b"1"
        with pytest.raises(AccessDenied, match="has the role reader, and DropTable needs the role writer or admin"):
            reader.drop_table("kv")
        assert reader.tables() == ["kv"]
        with pytest.raises(AccessDenied, match="the roles reader and writer, and Vacuum needs the role admin"):
            writer.vacuum()


@pytest.mark.parametrize("role", ["reader", "writer", "compactor"])
def test_only_an_admin_changes_the_settings_of_the_store(service: GuardedService, role: str) -> None:
    """Every role may open a session and name the present settings; a change would shorten the history of others."""
    with service.connect(role) as store:
        retention, grace = store.version().retention_ms // 1000, store.version().gc_grace_ms // 1000
    of_retention, of_grace = f"retention from {retention} to 0 seconds", f"gc_grace from {grace} to 1.5 seconds"
    for asked, said in (
        ({"retention": 0}, f"{of_retention}, which needs .* versions.retention_seconds of"),
        ({"gc_grace": 1.5}, f"{of_grace}, which needs the role admin: .* set versions.gc_grace_seconds of"),
        ({"retention": 0, "gc_grace": grace}, f"{of_retention}, which needs"),
        ({"retention": 0, "gc_grace": 1.5}, f"{of_retention} and {of_grace}, which needs"),
    ):
        with pytest.raises(AccessDenied, match=f"'the-{role}' may not change the store's {said}"):
            service.connect(role, **asked)
    with service.connect("admin", retention=3700, gc_grace=950) as admin:
        assert (admin.version().retention_ms, admin.version().gc_grace_ms) == (3_700_000, 950_000)
    with service.connect(role, retention=3700, gc_grace=950) as same:
        assert same.version().retention_ms == 3_700_000
    service.connect("admin", retention=3600, gc_grace=900).close()


def test_only_an_admin_changes_the_retention_of_a_table(service: GuardedService) -> None:
    """A writer gives its new table any, and of none that is there: it would end the history that others read."""
    with service.connect("writer") as writer, service.connect("admin") as admin:
        writer.create_table("mine", retention=60)
        for retention in (0, "store"):
            with pytest.raises(AccessDenied, match="'the-writer' may not change the retention of table 'mine'"):
                writer.alter_table("mine", retention=retention)
        assert admin.alter_table("mine", retention=0).spec.retention_ms == 0
        admin.drop_table("mine")


def test_a_failed_connection_says_which_option_to_set(service: GuardedService, tmp_path: Path) -> None:
    """Without TLS to a service that has it, without the certificate that it needs, with the wrong CA, or reversed."""
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    ca, pair = str(service.authority.certificate), {"tls_cert": str(service.pair.certificate)}
    pair["tls_key"] = str(service.pair.key)
    strange = other.sign("worker-1")
    foreign = {"tls_cert": str(strange.certificate), "tls_key": str(strange.key)}
    asked: list[tuple[dict[str, str], str]] = [
        ({}, "give its CA: tls_ca, or TUSSOCK_TLS_CA"),
        ({"tls_ca": ca}, "give tls_cert and tls_key"),
        ({"tls_ca": ca, **foreign}, "of a CA that it trusts"),
        ({"tls_ca": str(other.certificate), **pair}, "not by the CA that tls_ca names"),
        (
            {"tls_ca": ca, **pair, "tls_server_name": "elsewhere"},
            "for other names: connect by one of them, or .* tls_serv",
        ),
    ]
    for given, hint in asked:
        with pytest.raises(MetaUnavailable, match=hint):
            connect(service.process.url, deadline=1.0, **given)
    for given, words in (
        (
            {"tls_ca": ca, **pair, "tls_key": foreign["tls_key"]},
            "are not a PEM certificate and its unencrypted key: KEY_V",
        ),
        ({"tls_ca": pair["tls_key"]}, "holds no PEM certificates"),
    ):
        with pytest.raises(InvalidOption, match=words):
            connect(service.process.url, deadline=1.0, **given)
    with MetaProcess((tmp_path / "store").as_uri()) as plain:
        url = plain.wait_until_it_leads().url
        with pytest.raises(MetaUnavailable, match="speaks no TLS: leave tls_ca"):
            connect(url, deadline=1.0, tls_ca=ca)


def test_a_token_that_cannot_be_one_is_reported_as_such(
    service: GuardedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that no call can carry, and a file that holds none."""
    with pytest.raises(MessageTooLarge, match="the token, or what else goes with each call, is too long"):
        service.connect("x" * 100_000)
    monkeypatch.setenv("TUSSOCK_TOKEN_FILE", str(tmp_path / "token"))
    for content, said in (
        (None, "the file that TUSSOCK_TOKEN_FILE names cannot be read: No such file or directory; it should hold the"),
        (
            "",
            "token, which TUSSOCK_TOKEN_FILE names, is empty; it should hold the token alone, as `tussock meta token`",
        ),
        ("a\nb", "TUSSOCK_TOKEN_FILE names, has more than one line, or characters that no token has; it should hold"),
    ):
        if content is not None:
            (tmp_path / "token").write_text(content)
        with pytest.raises(InvalidOption, match=said):
            connect(service.process.url, tls_ca=str(service.authority.certificate), deadline=1.0)


def test_status_says_that_a_token_is_wrong(
    service: GuardedService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not say that the service did not answer."""
    given = (
        "--tls-ca",
        str(service.authority.certificate),
        "--tls-cert",
        str(service.pair.certificate),
    )
    arguments = [
        "tussock",
        "status",
        "--meta",
        service.process.address,
        *given,
        "--tls-key",
        str(service.pair.key),
    ]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setenv("TUSSOCK_TOKEN", "tussock_wrong")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: the bearer token is not known here")


def test_settings_of_the_service_cannot_be_changed_by_clients(tmp_path: Path) -> None:
    """Not even by an admin: the next start of the service would overrule it."""
    (tmp_path / "meta.toml").write_text("[versions]\nretention_seconds = 60\n")
    arguments = ((tmp_path / "store").as_uri(), "--config", str(tmp_path / "meta.toml"))
    with MetaProcess(*arguments) as process:
        url = process.wait_until_it_leads().url
        with pytest.raises(InvalidOption, match=r"retention of 5 seconds .* say 60 \(versions.retention_seconds\)"):
            connect(url, retention=5)
        with connect(url, retention=60, gc_grace=70) as store:
            store.create_table("t")
            assert (store.version().retention_ms, store.version().gc_grace_ms) == (60_000, 70_000)


def test_reader_may_not_pose_as_a_compactor(service: GuardedService) -> None:
    """It would get tasks, and could keep tables from being compacted."""
    request = pb.OpenSessionRequest(session_id="a" * 32, kind=pb.COMPACTOR, name="c", slots=4)
    with service.channel() as channel:
        refused = call(channel, "OpenSession", service.tokens["reader"], request.SerializeToString())
        assert refused == grpc.StatusCode.PERMISSION_DENIED
        assert (
            call(channel, "OpenSession", service.tokens["compactor"], request.SerializeToString()) == grpc.StatusCode.OK
        )


def test_a_session_belongs_to_the_caller_that_opened_it(service: GuardedService) -> None:
    """Another caller that learns a session's id can neither keep, end, use nor read it."""
    session = "b" * 32
    with service.channel() as channel:
        opened = pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="w").SerializeToString()
        assert call(channel, "OpenSession", service.tokens["writer"], opened) == grpc.StatusCode.OK
        for method in (
            "OpenSession",
            "Heartbeat",
            "CloseSession",
            "Pin",
            "Unpin",
            "Commit",
            "CommitEach",
            "Subscribe",
            "GetCredentials",
        ):
            request = METHODS[method].request(session_id=session).SerializeToString()
            assert call(channel, method, service.tokens["admin"], request) == grpc.StatusCode.PERMISSION_DENIED, method
        request = pb.HeartbeatRequest(session_id=session).SerializeToString()
        assert call(channel, "Heartbeat", service.tokens["writer"], request) == grpc.StatusCode.OK


def test_refusal_is_logged_with_names_and_without_secret(service: GuardedService) -> None:
    """Caller, method, address and reason; the fixture searches all lines for the secrets themselves."""
    with service.channel() as channel:
        call(channel, "Vacuum", service.tokens["writer"], tussock_request_id="req-17")
    line = service.process.wait_for(request_id="req-17")
    assert (line["level"], line["caller"], line["method"]) == ("warning", "the-writer", "Vacuum")
    assert line["code"] == "PERMISSION_DENIED"
    assert line["error"].startswith("AccessDenied: 'the-writer'")
    assert line["peer"].startswith("ipv4:127.0.0.1:")


def test_refusal_carries_no_detail_of_others(service: GuardedService) -> None:
    """The error's bytes on the wire hold neither token nor hash."""
    with service.channel() as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(METHODS["GetStatus"].path)(
            b"", metadata=[("tussock-protocol", "1"), ("authorization", "Bearer tussock_wrong")], timeout=20
        )
    sent = dict(raised.value.trailing_metadata())
    assert b"tussock_wrong" not in sent[ERROR_METADATA]
    assert pb.ErrorDetail.FromString(sent[ERROR_METADATA]).kind == "Unauthenticated"


def test_http_port_authenticates_like_the_grpc_port(service: GuardedService) -> None:
    """Metrics and status are for readers, over TLS; probes and the empty console are for all."""
    context = ssl.create_default_context(cafile=str(service.authority.certificate))

    def status(path: str, token: str | None, *, shown: bool = True) -> int:
        if shown:
            context.load_cert_chain(service.pair.certificate, service.pair.key)
        request = urllib.request.Request(f"https://{service.process.http}{path}")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    for path in ("/metrics", "/api/status"):
        assert status(path, service.tokens["reader"], shown=False) == 401
    assert status("/healthz", None, shown=False) == 200
    for path in ("/metrics", "/api/status"):
        assert status(path, service.tokens["reader"]) == 200
        assert status(path, "tussock_wrong") == 401
        assert status(path, None) == 401


def test_flood_of_wrong_tokens_does_not_flood_the_log(tmp_path: Path) -> None:
    """After the first hundred of a host the others are told to wait, and only counted."""
    _, line = create_token("ann", "reader", SYSTEM)
    (tmp_path / "tokens").write_text(line)
    arguments = ("--tokens.file", str(tmp_path / "tokens"))
    with (
        MetaProcess((tmp_path / "store").as_uri(), *arguments) as process,
        grpc.insecure_channel(process.address) as channel,
    ):
        codes = [call(channel, "GetStatus", f"wrong-{number}") for number in range(140)]
        assert codes[0] == grpc.StatusCode.UNAUTHENTICATED
        # A caller that is told to wait waits for that answer, too; the next call is checked again.
        assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes[-2:]
        process.terminate()
        assert process.wait() == 0
        logged = [one for one in process.lines if one.get("code") == "UNAUTHENTICATED"]
    assert len(logged) == codes.count(grpc.StatusCode.UNAUTHENTICATED) < 150


def test_tokens_and_certificates_work_alone(tmp_path: Path) -> None:
    """Each works without the other; a service without either logs a warning that it is open."""
    authority = Authority(tmp_path)
    server, client = authority.sign("meta"), authority.sign("ann", subject="/CN=ann/OU=analytics")
    secret, line = create_token("bob", "writer", SYSTEM)
    (tmp_path / "tokens").write_text(line)
    with MetaProcess((tmp_path / "store").as_uri(), "--tokens.file", str(tmp_path / "tokens")) as process:
        process.wait_until_it_leads()
        process.wait_for(event="tokens travel unencrypted")
        with connect(process.url, token=secret) as store:
            store.create_table("kv")
        with pytest.raises(Unauthenticated, match="TUSSOCK_TOKEN"):
            connect(process.url)
    tls = ["--tls.certificate", str(server.certificate), "--tls.key", str(server.key)]
    tls += ["--tls.client-ca", str(authority.certificate), "--tls.roles.reader", "OU:analytics"]
    with MetaProcess((tmp_path / "store").as_uri(), *tls) as process:
        process.wait_until_it_leads()
        given = {"tls_ca": str(authority.certificate), "tls_cert": str(client.certificate), "tls_key": str(client.key)}
        with connect(process.url, **given) as store, pytest.raises(AccessDenied, match="'ann' has the role reader"):
            store.create_table("kv")
    with MetaProcess((tmp_path / "store").as_uri()) as process:
        process.wait_until_it_leads()
        process.wait_for(event="anybody who reaches this service may do everything")
        with connect(process.url) as store:
            store.vacuum()


# --- Clients ---------------------------------------------------------------------------------------------------------


def test_environment_has_credentials_for_connect(service: GuardedService, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job on a cluster has no secret in its code."""
    monkeypatch.setenv("TUSSOCK_TOKEN", service.tokens["reader"])
    monkeypatch.setenv("TUSSOCK_TLS_CA", str(service.authority.certificate))
    monkeypatch.setenv("TUSSOCK_TLS_CERT", str(service.pair.certificate))
    monkeypatch.setenv("TUSSOCK_TLS_KEY", str(service.pair.key))
    with connect(service.process.url) as store:
        assert store.committed_epoch >= 0
        assert service.tokens["reader"] not in f"{store!r} {store.url} {vars(store)} {inside.parts(store)}"
