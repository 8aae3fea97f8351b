"""Tokens of an OIDC issuer: whose are taken, and which are not."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.service.meta_process import MetaProcess
from support.store.versions import FakeSystem
from tussock.meta.node.auth.authentication import Authenticator, Presented
from tussock.meta.node.auth.bearers.oidc import ANSWER_BYTES_MAX, KEYS_MAX, KEYS_SECONDS, NEW_KEY_SECONDS, OidcTokens
from tussock.meta.node.auth.bearers.proofs import Proofs
from tussock.meta.node.auth.bearers.signed_tokens import SignedTokens
from tussock.meta.node.auth.clients.registry import ClientRegistry
from tussock.statestore import connect
from tussock.statestore.errors import AccessDenied, InvalidOption, MetaUnavailable, Unauthenticated

jwt = pytest.importorskip("jwt", reason="no PyJWT: make setup")
from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: E402  # needed by PyJWT's keys, too

AUDIENCE = "tussock"


class RealClock(FakeSystem):
    """A monotonic clock that a test moves, and the time of day as it is, by which PyJWT judges tokens."""

    def now_ms(self) -> int:
        return int(time.time() * 1000)


class Issuer:
    """A server that publishes keys, and signs with them."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"first": rsa.generate_private_key(public_exponent=65537, key_size=2048)}
        self.asked: list[str] = []
        self.changes: dict[str, object] = {}
        """What the answers have instead."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                status, body = issuer.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/realm"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> tuple[int, bytes]:
        if path in self.changes:
            status, body = self.changes[path]  # type: ignore[misc]
            return status, body
        if path == "/realm/.well-known/openid-configuration":
            return 200, json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        assert path == "/realm/keys"
        return 200, json.dumps({"keys": [self.published(name) for name in self.keys]}).encode()

    def published(self, name: str) -> dict[str, Any]:
        key = self.keys[name].public_key()
        made = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPublicKey) else jwt.algorithms.ECAlgorithm
        return {**made.to_jwk(key, as_dict=True), "kid": name, "use": "sig"}

    def sign(self, key: str = "first", algorithm: str = "RS256", **changes: object) -> str:
        """A token for the tests' client; a claim that is changed to `None` is left out."""
        now = int(time.time())
        claims = {"iss": self.url, "sub": "ann", "aud": AUDIENCE, "exp": now + 300, "iat": now, **changes}
        told = {name: value for name, value in claims.items() if value is not None}
        return str(jwt.encode(told, self.keys[key], algorithm=algorithm, headers={"kid": key}))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


def entry(issuer: str, identity: str = 'subject = "ann"', name: str = "ann") -> str:
    return (
        f'[clients.{name}]\nrole = "reader"\noidc = [{{ issuer = "{issuer}", audience = "{AUDIENCE}", {identity} }}]\n'
    )


class Door:
    """An authenticator that knows clients of an issuer."""

    def __init__(self, folder: Path, text: str, *, allow_http: bool = True) -> None:
        self.system = RealClock()
        (folder / "clients").write_text(text)
        tokens = OidcTokens(self.system, allow_http=allow_http)
        self._made = Authenticator(
            self.system,
            clients=ClientRegistry(str(folder / "clients"), self.system),
            signed=SignedTokens(oidc=Proofs(self.system, tokens.check, "tokens")),
        )

    def enter(self, token: str) -> str:
        """The identity of the caller with this token."""
        presented = Presented(f"Bearer {token}", ())
        asyncio.run(self._made.prove(presented))
        return self._made.authenticate(presented).identity


def test_a_subject_gets_in(issuer: Issuer, tmp_path: Path) -> None:
    """The keys are fetched once for all its tokens."""
    door = Door(tmp_path, entry(issuer.url))
    for number in range(3):
        assert door.enter(issuer.sign(jti=str(number))) == "client:ann"
    assert issuer.asked == ["/realm/.well-known/openid-configuration", "/realm/keys"]


@pytest.mark.parametrize(("groups", "gets_in"), [(["x", "analytics"], True), ("analytics", True), (["x"], False)])
def test_a_claim_may_say_who_it_is(issuer: Issuer, tmp_path: Path, groups: object, gets_in: bool) -> None:
    """Also one among several values."""
    door = Door(tmp_path, entry(issuer.url, 'claims = { groups = "analytics" }'))
    if gets_in:
        assert door.enter(issuer.sign(sub="bob", groups=groups)) == "client:ann"
        return
    with pytest.raises(Unauthenticated):
        door.enter(issuer.sign(sub="bob", groups=groups))


@pytest.mark.parametrize(
    ("algorithm", "curve"), [("RS512", None), ("PS256", None), ("ES256", ec.SECP256R1()), ("ES384", ec.SECP384R1())]
)
def test_algorithms_with_two_keys_are_taken(
    issuer: Issuer, tmp_path: Path, algorithm: str, curve: ec.EllipticCurve | None
) -> None:
    if curve is not None:
        issuer.keys["first"] = ec.generate_private_key(curve)
    assert Door(tmp_path, entry(issuer.url)).enter(issuer.sign(algorithm=algorithm)) == "client:ann"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exp": 1_000_000_000}, "expired"),
        ({"exp": None}, 'missing the "exp" claim'),
        ({"nbf": 4_000_000_000}, "not yet valid"),
        ({"aud": "elsewhere"}, "not known here"),
        ({"aud": None}, "not known here"),
        ({"sub": "eve"}, "not known here"),
        ({"sub": None}, "not known here"),
        ({"iss": "https://elsewhere.example"}, "not known here"),
    ],
)
def test_a_token_that_says_something_else_is_refused(
    issuer: Issuer, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(Unauthenticated, match=said):
        Door(tmp_path, entry(issuer.url)).enter(issuer.sign(**changes))


def test_clocks_may_differ_a_little(issuer: Issuer, tmp_path: Path) -> None:
    """By half a minute."""
    now = int(time.time())
    assert Door(tmp_path, entry(issuer.url)).enter(issuer.sign(exp=now - 5)) == "client:ann"


def test_a_token_that_is_not_signed_by_the_issuer_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    """By another key of the same name, by the public key as a secret, by nobody, or changed after it was signed."""
    door, right = Door(tmp_path, entry(issuer.url)), issuer.sign()
    head, claims, signature = right.split(".")
    other = Issuer()
    other.close()
    other.url = issuer.url
    unsigned = jwt.encode({"iss": issuer.url, "sub": "ann", "aud": AUDIENCE, "exp": 4_000_000_000}, None, "none")
    symmetric = jwt.encode(
        {"iss": issuer.url, "sub": "ann", "aud": AUDIENCE, "exp": 4_000_000_000}, "s" * 64, "HS256", {"kid": "first"}
    )
    changed = issuer.sign(admin=True).split(".")[1]
    for token in (other.sign(), unsigned, symmetric, f"{head}.{changed}.{signature}", f"{head}.{claims}.AAAA"):
        with pytest.raises(Unauthenticated):
            door.enter(token)
    assert door.enter(right) == "client:ann"


def test_a_new_key_of_the_issuer_is_found(issuer: Issuer, tmp_path: Path) -> None:
    """At once if the last look is some seconds ago; one that was taken back counts for ten minutes at most."""
    door = Door(tmp_path, entry(issuer.url))
    door.enter(issuer.sign())
    old = issuer.sign(jti="old")
    issuer.keys = {"second": rsa.generate_private_key(public_exponent=65537, key_size=2048)}
    with pytest.raises(Unauthenticated, match="names no key"):
        door.enter(issuer.sign("second"))
    door.system.forward(NEW_KEY_SECONDS)
    assert door.enter(issuer.sign("second", jti="again")) == "client:ann"
    with pytest.raises(Unauthenticated, match="names no key"):
        door.enter(old)
    issuer.close()
    assert door.enter(issuer.sign("second", jti="more")) == "client:ann"
    door.system.forward(KEYS_SECONDS)
    with pytest.raises(MetaUnavailable, match="cannot be had"):
        door.enter(issuer.sign("second", jti="late"))


@pytest.mark.parametrize(
    ("path", "answer", "said"),
    [
        ("/realm/keys", (500, b""), "status 500"),
        ("/realm/keys", (200, b"[]"), "no JSON object"),
        ("/realm/keys", (200, b"{"), "cannot be had: JSONDecodeError"),
        ("/realm/keys", (200, b"{}"), "publishes no keys"),
        ("/realm/keys", (200, json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode()), "or more than"),
        ("/realm/keys", (200, b" " * (ANSWER_BYTES_MAX + 1)), "no JSON object of up to"),
        ("/realm/.well-known/openid-configuration", (200, b'{"issuer": "https://other"}'), "is that of another one"),
        ("/realm/.well-known/openid-configuration", (302, b""), "status 302"),
    ],
)
def test_without_keys_nobody_gets_in(
    issuer: Issuer, tmp_path: Path, path: str, answer: tuple[int, bytes], said: str
) -> None:
    """Until the issuer answers as it should."""
    door, token = Door(tmp_path, entry(issuer.url)), issuer.sign()
    issuer.changes[path] = answer
    with pytest.raises(MetaUnavailable, match=said):
        door.enter(token)
    issuer.changes.clear()
    assert door.enter(token) == "client:ann"


def test_keys_come_over_https_unless_told_otherwise(issuer: Issuer, tmp_path: Path) -> None:
    """A machine in between could have any token taken; that holds for the address of the keys, too."""
    with pytest.raises(MetaUnavailable, match="no https:// address"):
        Door(tmp_path, entry(issuer.url), allow_http=False).enter(issuer.sign())
    assert issuer.asked == []
    body = json.dumps({"issuer": issuer.url, "jwks_uri": "file:///etc/passwd"}).encode()
    issuer.changes["/realm/.well-known/openid-configuration"] = (200, body)
    with pytest.raises(MetaUnavailable, match="no https:// address"):
        Door(tmp_path, entry(issuer.url)).enter(issuer.sign())


def test_of_an_issuer_that_is_not_declared_nobody_is_asked(issuer: Issuer, tmp_path: Path) -> None:
    """A token cannot send the service to an address of its choice."""
    door = Door(tmp_path, entry("https://login.example"))
    with pytest.raises(Unauthenticated, match="not known here"):
        door.enter(issuer.sign())
    assert issuer.asked == []


def test_a_token_of_two_clients_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    text = entry(issuer.url) + entry(issuer.url, 'claims = { groups = "x" }', "others")
    with pytest.raises(Unauthenticated, match="several declared clients, 'ann' and 'others'"):
        Door(tmp_path, text).enter(issuer.sign(groups=["x"]))


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ("", "names nobody: give subject or claims"),
        ("claims = {}", "names nobody"),
        ('subject = ""', "subject"),
        ('subject = "a", kid = "b"', "kid"),
        ("claims = { groups = 7 }", "claims.groups"),
    ],
)
def test_an_identity_names_somebody(tmp_path: Path, identity: str, said: str) -> None:
    """Or everybody whom the issuer knows would be this client."""
    with pytest.raises(InvalidOption, match=said):
        Door(tmp_path, entry("https://login.example", identity).replace(",  }", " }"))


def test_an_issuer_at_a_real_service(issuer: Issuer, tmp_path: Path) -> None:
    """A token opens a session with the role of the entry, and is in no line of the log."""
    (tmp_path / "c").write_text(entry(issuer.url))
    arguments = ("--clients.file", str(tmp_path / "c"), "--oidc.allow-http", "true", "--log.level", "debug")
    with MetaProcess((tmp_path / "store").as_uri(), *arguments) as process:
        process.wait_until_it_leads()
        with (
            connect(process.url, token=issuer.sign(), deadline=10.0) as store,
            pytest.raises(AccessDenied, match="'client:ann' has the role reader"),
        ):
            store.create_table("kv")
        with pytest.raises(Unauthenticated):
            connect(process.url, token=issuer.sign(exp=1_000_000_000), deadline=10.0)
        assert not [line for line in process.raw if issuer.sign().split(".")[0] in line]
