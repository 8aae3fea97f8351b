"""TLS of the HTTP port, with certificates that a real CA made and a real client checks."""

import asyncio
import hashlib
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.service.statuses import bare_status
from support.store.versions import FakeSystem
from tussock.meta.node.auth.authentication import Authenticator, Presented
from tussock.meta.node.auth.clients.registry import ClientRegistry
from tussock.meta.node.auth.http_tls import http_tls
from tussock.meta.node.auth.tokens import create_token
from tussock.meta.node.wire.http_port import start_http
from tussock.meta.server.wire.http_server import make_app
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import InvalidOption, Unauthenticated

DAYS = "2"


class Certificates:
    """A CA in a folder, and the certificates that it signs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._openssl("req", "-x509", *self._fresh("ca"), "-out", self.path("ca.pem"), "-subj", "/CN=ca")

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def sign(self, name: str, subject: str, uri: str = "tussock://data/shop/none") -> None:
        """Write `<name>.pem` and `<name>.key`, replacing what is there; valid for 127.0.0.1."""
        request, extensions = self.path(f"{name}.csr"), self.folder / "extensions"
        extensions.write_text(f"subjectAltName=IP:127.0.0.1,DNS:localhost,URI:{uri}")
        self._openssl("req", *self._fresh(name), "-out", request, "-subj", subject)
        ca = ("-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"), "-CAcreateserial", "-extfile", str(extensions))
        self._openssl("x509", "-req", "-in", request, *ca, "-days", DAYS, "-out", self.path(f"{name}.pem"))

    def _fresh(self, name: str) -> tuple[str, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path(f"{name}.key"))

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on the PATH to make certificates with (Debian: apt-get install openssl)")
    made = Certificates(tmp_path)
    made.sign("server", "/CN=meta-0")
    return made


def serve(context: ssl.SSLContext, authenticator: Authenticator, questions: Callable[[str], Awaitable[None]]) -> None:
    async def body() -> None:
        runner, port = await start_http(
            make_app(bare_status, lambda: bare_status().replica, lambda: b"", authenticator.authenticate),
            "127.0.0.1",
            0,
            context,
        )
        try:
            await questions(f"https://127.0.0.1:{port}")
        finally:
            await runner.cleanup()

    asyncio.run(asyncio.wait_for(body(), 60))


async def ask(url: str, client: ssl.SSLContext, token: str = "") -> tuple[int, str]:
    """Status and the server's serial number, over a new connection."""
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port, ssl=client)
    try:
        writer.write(f"GET {where.path} HTTP/1.0\r\n{shown}\r\n".encode())
        status = int((await reader.readuntil()).split()[1])
        return status, writer.get_extra_info("peercert")["serialNumber"]
    finally:
        writer.close()


def test_replaced_certificate_serves_the_next_connection(certificates: Certificates) -> None:
    """Certificates are rotated without a restart; a pair that does not match leaves the former one in force."""
    system = FakeSystem()
    context = http_tls(certificates.path("server.pem"), certificates.path("server.key"), "", system)
    client = ssl.create_default_context(cafile=certificates.path("ca.pem"))

    async def questions(url: str) -> None:
        _, first = await ask(f"{url}/healthz", client)
        certificates.sign("server", "/CN=meta-0")
        system.forward(2)
        status, second = await ask(f"{url}/healthz", client)
        assert status == 200
        assert second != first
        (certificates.folder / "server.key").write_text("torn")
        system.forward(2)
        assert (await ask(f"{url}/healthz", client))[1] == second

    serve(context, Authenticator(system), questions)


def test_status_needs_a_certificate_if_the_service_does(certificates: Certificates) -> None:
    """Probes need none; the status needs one whose role allows it; one of another CA is refused."""
    system = FakeSystem()
    paths = [certificates.path(name) for name in ("server.pem", "server.key", "ca.pem")]
    context = http_tls(*paths, system)
    rules = {"reader": ["CN:dashboard", "URI:tussock://data/shop/reader"]}
    authenticator = Authenticator(system, certificates_required=True, certificate_roles=rules)

    def client(name: str = "") -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=certificates.path("ca.pem"))
        if name:
            made.load_cert_chain(certificates.path(f"{name}.pem"), certificates.path(f"{name}.key"))
        return made

    certificates.sign("dashboard", "/CN=dashboard")
    certificates.sign("nobody", "/CN=nobody")
    certificates.sign("reader", "/CN=any", "tussock://data/shop/reader")
    certificates.sign("reader of another", "/CN=tussock-reader", "tussock://data/shop2/reader")
    (certificates.folder / "other").mkdir()
    other = Certificates(certificates.folder / "other")
    other.sign("dashboard", "/CN=dashboard")
    stranger = client()
    stranger.load_cert_chain(other.path("dashboard.pem"), other.path("dashboard.key"))

    async def questions(url: str) -> None:
        assert (await ask(f"{url}/healthz", client()))[0] == 200
        assert (await ask(f"{url}/api/status", client()))[0] == 401
        assert (await ask(f"{url}/api/status", client("nobody")))[0] == 403
        assert (await ask(f"{url}/api/status", client("dashboard")))[0] == 200
        assert (await ask(f"{url}/api/status", client("reader")))[0] == 200
        assert (await ask(f"{url}/api/status", client("reader of another")))[0] == 403
        with pytest.raises((OSError, EOFError)):
            await ask(f"{url}/healthz", stranger)

    serve(context, authenticator, questions)


def test_a_declared_client_looks_with_its_token_alone(certificates: Certificates) -> None:
    """A browser has no certificate. A token that only the tokens file has is not enough: that needs both."""
    system = FakeSystem()
    context = http_tls(*(certificates.path(name) for name in ("server.pem", "server.key", "ca.pem")), system)
    declared, _ = create_token("guest", "reader", RealSystem())
    of_file, entry = create_token("of-file", "admin", RealSystem())
    file, tokens = certificates.folder / "clients", certificates.folder / "tokens"
    digest = hashlib.sha256(declared.encode()).hexdigest()
    text = f'[clients.guest]\nrole = "reader"\ntokens = ["sha256:{digest}"]\n'
    file.write_text(text)
    tokens.write_text(f"{entry}\n")
    authenticator = Authenticator(
        system,
        tokens_file=str(tokens),
        certificates_required=True,
        certificate_roles={"reader": ["CN:dashboard"]},
        clients=ClientRegistry(str(file), system),
    )
    browser = ssl.create_default_context(cafile=certificates.path("ca.pem"))

    async def questions(url: str) -> None:
        async def status(token: str) -> int:
            return (await ask(f"{url}/api/status", browser, token))[0]

        assert await status(declared) == 200
        assert [await status(wrong) for wrong in ("", of_file, declared[:-1])] == [401] * 3
        file.write_text(f"{text}revoked = true\n")
        system.forward(2)
        assert await status(declared) == 401

    serve(context, authenticator, questions)
    # A call is none of a page's: its connection has a certificate, or there is none.
    file.write_text(text)
    system.forward(2)
    with pytest.raises(Unauthenticated, match="shows no certificate"):
        authenticator.authenticate(Presented(f"Bearer {declared}", ()))


def test_unusable_files_are_named(certificates: Certificates) -> None:
    certificates.sign("another", "/CN=another")
    for pair in (("server.pem", "another.key"), ("server.pem", "absent.key")):
        with pytest.raises(InvalidOption, match=pair[1].replace(".", r"\.")):
            http_tls(certificates.path(pair[0]), certificates.path(pair[1]), "", FakeSystem())
