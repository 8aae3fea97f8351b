"""Certificates, CAs and tokens are replaced while service and clients run, without a restart."""

import contextlib
import os
import shutil
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from support.network.certificates import Authority, Pair, serial_number
from support.service.platforms import Replica
from support.store.versions import FakeSystem
from tussock.meta.client.access import dial_with
from tussock.meta.client.transport import Transport
from tussock.meta.node.auth.authentication import Authenticator, Presented
from tussock.meta.node.auth.tls import server_credentials
from tussock.meta.node.auth.tokens import FORMER_TOKENS_MAX, create_token, read_tokens
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.statestore.base.identity import Access
from tussock.statestore.base.system import RealSystem
from tussock.statestore.base.watched_files import WatchedFiles
from tussock.statestore.errors import InvalidOption, MetaUnavailable, Unauthenticated

# --- Files that are watched ------------------------------------------------------------------------------------------


def read(paths: Sequence[str]) -> str:
    """Text that must not be empty."""
    text = Path(paths[0]).read_text()
    if not text:
        raise InvalidOption(f"{paths[0]} is empty")
    return text


def later(system: FakeSystem) -> None:
    """Let more than a second pass."""
    system.sleep(1.5)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Within a second or so; without a change the same object comes back."""
    file, system = tmp_path / "f", FakeSystem()
    file.write_text("old")
    watched = WatchedFiles([str(file)], read, system)
    first = watched.current()
    later(system)
    assert watched.current() is first
    file.write_text("new!")
    assert watched.current() == "old"
    later(system)
    assert watched.current() == "new!"


def test_a_changed_link_is_noticed(tmp_path: Path) -> None:
    """Kubernetes mounts secrets as links, and turns one link to put new files in place."""
    system = FakeSystem()
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
        os.utime(tmp_path / name / "f", (1, 1))
    (tmp_path / "data").symlink_to("old")
    watched = WatchedFiles([str(tmp_path / "data" / "f")], read, system)
    (tmp_path / "turned").symlink_to("new")
    (tmp_path / "turned").rename(tmp_path / "data")
    later(system)
    assert watched.current() == "new"


@pytest.mark.parametrize("spoil", [lambda file: file.write_text(""), lambda file: file.unlink()], ids=["empty", "gone"])
def test_file_that_cannot_be_used_changes_nothing(
    tmp_path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The former content stays in force, one line is logged, and the next good file is taken."""
    file, system = tmp_path / "f", FakeSystem()
    file.write_text("old")
    watched = WatchedFiles([str(file)], read, system)
    spoil(file)
    for _ in range(3):
        later(system)
        assert watched.current() == "old"
    assert len([record for record in caplog.records if "cannot be used" in record.message]) == 1
    file.write_text("good")
    later(system)
    assert watched.current() == "good"


def test_file_that_is_missing_at_the_start_is_named(tmp_path: Path) -> None:
    """There is no former content to use."""
    with pytest.raises(InvalidOption, match="f cannot be read: No such file"):
        WatchedFiles([str(tmp_path / "f")], read, FakeSystem())


def test_revoked_token_is_refused_and_a_new_one_taken(tmp_path: Path) -> None:
    """While a token is replaced, its name stands on two lines and both tokens are valid."""
    system, file = FakeSystem(), tmp_path / "tokens"
    (old, old_line), (new, new_line) = (create_token("spark", "writer", RealSystem()) for _ in range(2))
    file.write_text(old_line)
    authenticator = Authenticator(system, tokens_file=str(file))

    def is_known(token: str) -> bool:
        try:
            return authenticator.authenticate(Presented(f"Bearer {token}", ())).identity == "spark"
        except Unauthenticated:
            return False

    assert (is_known(old), is_known(new)) == (True, False)
    file.write_text(f"{old_line}\n{new_line}")
    later(system)
    assert (is_known(old), is_known(new)) == (True, True)
    file.write_text(new_line)
    later(system)
    assert (is_known(old), is_known(new)) == (False, True)
    assert [token.name for token in read_tokens([str(file)])] == ["spark"]


def test_the_last_tokens_to_leave_the_file_are_known_as_revoked(tmp_path: Path) -> None:
    """By their hashes, until they are back in the file or hundreds have left after them."""
    made = [create_token(f"t{number}", "reader", RealSystem()) for number in range(FORMER_TOKENS_MAX + 2)]
    system, file = FakeSystem(), tmp_path / "tokens"
    file.write_text("\n".join(line for _, line in made))
    authenticator = Authenticator(system, tokens_file=str(file))

    def name(number: int) -> str:
        with contextlib.suppress(Unauthenticated):
            return authenticator.authenticate(Presented(f"Bearer {made[number][0]}", ())).identity
        return authenticator.revoked_identity(Presented(f"Bearer {made[number][0]}", ()))

    file.write_text("\n".join(line for _, line in made[1:]))
    later(system)
    assert (name(0), name(1)) == ("t0 (revoked)", "t1")
    file.write_text("\n".join(line for _, line in made))
    later(system)
    assert name(0) == "t0"
    file.write_text(made[-1][1])
    later(system)
    assert [name(number) for number in (0, 1, len(made) - 2)] == ["", "t1 (revoked)", f"t{len(made) - 2} (revoked)"]
    assert authenticator.revoked_identity(Presented(None, ())) == ""


def test_a_revoked_certificate_is_known_by_its_name() -> None:
    """The log names its holder as the refusal does."""
    authenticator = Authenticator(FakeSystem(), certificates_required=True, revoked=["CN:job"])
    assert authenticator.revoked_identity(Presented(None, ["CN:job"])) == "job (revoked)"
    assert authenticator.revoked_identity(Presented(None, ["CN:other"])) == ""


# --- A real service --------------------------------------------------------------------------------------------------


class Service:
    """A replica with TLS, whose files are checked when the test says that time has passed."""

    def __init__(self, folder: Path, *, clients: bool) -> None:
        self.system = FakeSystem()
        self.authority = Authority(folder)
        self.files = self.authority.sign("server")
        self.client_ca = folder / "clients.pem"
        shutil.copy(self.authority.certificate, self.client_ca)
        self.credentials = server_credentials(
            str(self.files.certificate), str(self.files.key), str(self.client_ca) if clients else "", self.system
        )
        options = NodeOptions(store_url="memory://", address="127.0.0.1:0")
        self.replica = Replica(options, credentials=self.credentials)

    def serial(self) -> str:
        """The serial number of the certificate on a new connection."""
        host, _, port = self.replica.address.rpartition(":")
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((host, int(port)), 20)
        with context.wrap_socket(plain, server_hostname="localhost") as secure:
            shown = secure.getpeercert(binary_form=True)
        assert shown is not None
        return serial_number(ssl.DER_cert_to_PEM_cert(shown).encode())

    def client(self, pair: Pair | None = None, system: FakeSystem | None = None) -> Transport:
        cert, key = (str(pair.certificate), str(pair.key)) if pair else ("", "")
        access = Access(tls_ca=str(self.authority.certificate), tls_cert=cert, tls_key=key)
        return dial_with(access, system or FakeSystem())(self.replica.address)


def ask(transport: Transport) -> None:
    """One call that any replica answers."""
    assert isinstance(transport.call(METHODS["GetStatus"], pb.GetStatusRequest(), 5.0), pb.GetStatusResponse)


def test_new_connection_gets_the_new_certificate(tmp_path: Path) -> None:
    """A connection from before goes on undisturbed."""
    service = Service(tmp_path, clients=False)
    try:
        old = service.client()
        ask(old)
        first = service.serial()
        assert first == serial_number(service.files.certificate.read_bytes())
        service.authority.sign("server")
        later(service.system)
        assert service.serial() == serial_number(service.files.certificate.read_bytes()) != first
        ask(old)
        old.close()
    finally:
        service.replica.stop()


def test_half_of_a_new_pair_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A key without its certificate would fail every handshake; until both are there the old pair serves."""
    service = Service(tmp_path, clients=False)
    try:
        first = service.serial()
        other = service.authority.sign("other")
        shutil.copy(other.key, service.files.key)
        later(service.system)
        assert service.serial() == first
        (line,) = [record.message for record in caplog.records if "cannot be used" in record.message]
        assert "are not a PEM certificate and its unencrypted key" in line
        shutil.copy(other.certificate, service.files.certificate)
        later(service.system)
        assert service.serial() == serial_number(other.certificate.read_bytes()) != first
    finally:
        service.replica.stop()


def test_the_ca_of_clients_can_be_replaced(tmp_path: Path) -> None:
    """New connections of the former CA's clients are refused from then on, those of the new one's are accepted."""
    service = Service(tmp_path / "a", clients=True)
    former, newer = service.authority, Authority(tmp_path / "b", "newer")
    old_pair, new_pair = former.sign("worker"), newer.sign("worker")
    try:
        with_old = service.client(old_pair)
        ask(with_old)
        with pytest.raises(MetaUnavailable):
            ask(service.client(new_pair))
        shutil.copy(newer.certificate, service.client_ca)
        later(service.system)
        ask(service.client(new_pair))
        with pytest.raises(MetaUnavailable):
            ask(service.client(old_pair))
        ask(with_old)
    finally:
        service.replica.stop()


def test_client_shows_its_new_certificate(tmp_path: Path) -> None:
    """A long job outlives its certificate: the next call after a change makes a new connection."""
    service = Service(tmp_path / "a", clients=True)
    newer = Authority(tmp_path / "b", "newer")
    pair, system = service.authority.sign("worker"), FakeSystem()
    try:
        client = service.client(pair, system)
        ask(client)
        shutil.copy(newer.certificate, service.client_ca)
        later(service.system)
        replaced = newer.sign("worker")
        shutil.copy(replaced.key, pair.key)
        shutil.copy(replaced.certificate, pair.certificate)
        later(system)
        ask(client)
        client.close()
    finally:
        service.replica.stop()


@pytest.mark.parametrize("broken", ["certificate", "key", "ca"])
def test_files_that_are_no_certificates_are_named_at_the_start(tmp_path: Path, broken: str) -> None:
    """The service does not start with files that it could not use."""
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    files = {"certificate": str(pair.certificate), "key": str(pair.key), "ca": str(authority.certificate)}
    Path(files[broken]).write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    with pytest.raises(InvalidOption) as raised:
        server_credentials(files["certificate"], files["key"], files["ca"], FakeSystem())
    assert files[broken] in str(raised.value)


def test_token_of_a_client_is_read_again(tmp_path: Path) -> None:
    """A token in a file is sent as the file has it when the call is made."""
    file, system = tmp_path / "token", FakeSystem()
    file.write_text("tussock_one\n")
    seen: list[str] = []

    class Listener(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            seen.append(dict(details.invocation_metadata)["authorization"])
            return grpc.unary_unary_rpc_method_handler(lambda _, __: b"")

    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Listener(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        client = dial_with(Access(token_file=str(file)), system)(f"127.0.0.1:{port}")
        ask(client)
        file.write_text("tussock_two_")
        later(system)
        ask(client)
        client.close()
    finally:
        server.stop(0)
    assert seen == ["Bearer tussock_one", "Bearer tussock_two_"]
