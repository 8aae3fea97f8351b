"""Tokens of service accounts: what an API of Kubernetes may answer, and what becomes of the token then."""

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.store.versions import FakeSystem
from tussock.meta.node.auth.authentication import Authenticator, Presented
from tussock.meta.node.auth.bearers.claims import TOKEN_BYTES_MAX, account_of, unproven_claims
from tussock.meta.node.auth.bearers.proofs import (
    ASKED_BURST,
    ASKED_PER_SECOND,
    KEPT_MAX,
    PROVEN_SECONDS,
    REFUSED_SECONDS,
    Proofs,
)
from tussock.meta.node.auth.bearers.signed_tokens import SignedTokens
from tussock.meta.node.auth.bearers.token_review import TokenReviews, api_of_pod
from tussock.meta.node.auth.clients.registry import ClientRegistry
from tussock.statestore.errors import InvalidOption, MetaUnavailable, RateLimited, TussockError, Unauthenticated

AUDIENCE = "tussock"
ACCOUNT = "system:serviceaccount:shop:dashboard"
CLIENTS = '[clients.dashboard]\nrole = "reader"\nservice_accounts = ["shop/dashboard"]\n'
OWN = "own-token-of-the-service"


def made_up(subject: object = ACCOUNT, serial: int = 0) -> str:
    """A token that claims to be of this subject; its signature is nonsense."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256'})}.{part({'sub': subject, 'n': serial})}.c2ln"


def review(**status: object) -> tuple[int, bytes]:
    """An answer of the API."""
    return 201, json.dumps({"kind": "TokenReview", "status": status}).encode()


def proven(user: str = ACCOUNT, audiences: object = (AUDIENCE,)) -> tuple[int, bytes]:
    return review(authenticated=True, user={"username": user}, audiences=audiences)


class Api:
    """A server that answers as the API of Kubernetes does, as it is told to."""

    def __init__(self) -> None:
        self.answer: Callable[[], tuple[int, bytes]] = proven
        self.asked: list[dict[str, object]] = []
        self.shown: list[str | None] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                api.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                api.shown.append(self.headers["Authorization"])
                assert self.path == "/apis/authentication.k8s.io/v1/tokenreviews"
                status, body = api.answer()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the service's own account."""
    (tmp_path / "token").write_text(f"{OWN}\n")
    (tmp_path / "ca.crt").write_text("")
    return tmp_path


class Door:
    """An authenticator that asks an API."""

    def __init__(self, api: Api, folder: Path, clients: str = CLIENTS) -> None:
        self.system = FakeSystem()
        (folder / "clients").write_text(clients)
        self.reviews = TokenReviews(self.system, api.url, AUDIENCE, str(folder))
        self._made = Authenticator(
            self.system,
            clients=ClientRegistry(str(folder / "clients"), self.system),
            signed=SignedTokens(accounts=Proofs(self.system, self.reviews.check, "tokens")),
        )

    def enter(self, token: str) -> str:
        """The identity of the caller with this token."""
        presented = Presented(f"Bearer {token}", ())
        asyncio.run(self._made.prove(presented))
        return self._made.authenticate(presented).identity


def test_a_declared_account_gets_in(api: Api, folder: Path) -> None:
    """By the API's word, for the service's audience, asked with the service's own token."""
    assert Door(api, folder).enter(made_up()) == "client:dashboard"
    assert api.asked[0]["spec"] == {"token": made_up(), "audiences": [AUDIENCE]}
    assert api.shown == [f"Bearer {OWN}"]


def test_who_is_told_counts_and_not_who_is_claimed(api: Api, folder: Path) -> None:
    """A token that claims to be of a declared account, and is of another, is of nobody here."""
    api.answer = lambda: proven("system:serviceaccount:shop:other")
    with pytest.raises(Unauthenticated):
        Door(api, folder).enter(made_up())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (review(authenticated=False, error="expired"), "does not know the bearer token as one for the audience"),
        (review(), "does not know the bearer token"),
        (review(authenticated="yes", user={"username": ACCOUNT}, audiences=[AUDIENCE]), "does not know"),
        (review(authenticated=True, audiences=[AUDIENCE]), "does not know"),
        (proven(audiences=[]), "does not say that the bearer token is for 'tussock'"),
        (proven(audiences=None), "does not say that the bearer token is for 'tussock'"),
        (proven(audiences="tussock"), "does not say that the bearer token is for 'tussock'"),
        (proven("kubernetes-admin"), "not that of a service account"),
    ],
)
def test_a_token_that_is_none_is_refused(api: Api, folder: Path, answer: tuple[int, bytes], said: str) -> None:
    """And the API is not asked again at once."""
    api.answer = lambda: answer
    door = Door(api, folder)
    for _ in range(3):
        with pytest.raises(Unauthenticated, match=said):
            door.enter(made_up())
    assert len(api.asked) == 1
    api.answer = proven
    door.system.forward(REFUSED_SECONDS)
    assert door.enter(made_up()) == "client:dashboard"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((500, b"broken"), "status 500"),
        ((403, b"{}"), "bind its account to the ClusterRole system:auth-delegator"),
        ((401, b"{}"), "bind its account"),
        ((201, b"{"), "gave no TokenReview"),
        ((201, b"[]"), "gave no TokenReview"),
        ((201, b"[" * 100_000), "gave no TokenReview"),
        ((201, json.dumps({"status": "x" * (2 << 20)}).encode()), "gave no TokenReview"),
        ((302, b""), "status 302"),
    ],
)
def test_an_api_that_says_nothing_of_use_lets_nobody_in(
    api: Api, folder: Path, answer: tuple[int, bytes], said: str
) -> None:
    """The error can be tried again, has neither token, and is not remembered."""
    api.answer = lambda: answer
    door = Door(api, folder)
    with pytest.raises(MetaUnavailable, match=said) as raised:
        door.enter(made_up())
    assert OWN not in str(raised.value)
    assert made_up() not in str(raised.value)
    api.answer = proven
    assert door.enter(made_up()) == "client:dashboard"


def test_without_an_api_nobody_gets_in_any_more(api: Api, folder: Path) -> None:
    """Also one that was let in before, once that is some seconds ago."""
    door = Door(api, folder)
    assert door.enter(made_up()) == "client:dashboard"
    api.close()
    assert door.enter(made_up()) == "client:dashboard"
    door.system.forward(PROVEN_SECONDS)
    with pytest.raises(MetaUnavailable, match="cannot be asked") as raised:
        door.enter(made_up())
    assert raised.value.__cause__ is None


def test_a_proof_is_remembered_for_a_bounded_time(api: Api, folder: Path) -> None:
    """So a token that was taken back is refused after that at the latest."""
    door = Door(api, folder)
    for _ in range(5):
        door.enter(made_up())
    assert len(api.asked) == 1
    api.answer = lambda: review(authenticated=False)
    door.system.forward(PROVEN_SECONDS)
    with pytest.raises(Unauthenticated):
        door.enter(made_up())


def test_calls_that_come_together_ask_once(api: Api, folder: Path) -> None:
    """They wait for one answer."""
    door = Door(api, folder)
    proofs = Proofs(door.system, door.reviews.check, "tokens")

    async def together() -> None:
        await asyncio.gather(*(proofs.prove(b"digest", made_up()) for _ in range(20)))

    asyncio.run(together())
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    "token",
    [
        *("tussock_x", "a.b", "a.b.c", "..", "x" * TOKEN_BYTES_MAX + "." + made_up().partition(".")[2]),
        *(made_up(subject) for subject in ("system:serviceaccount:shop:other", "ann", 7, ACCOUNT + ":x")),
    ],
)
def test_of_what_claims_nothing_about_a_declared_account_nobody_is_asked(api: Api, folder: Path, token: str) -> None:
    """Junk costs no request."""
    with pytest.raises(Unauthenticated, match="not known here"):
        Door(api, folder).enter(token)
    assert api.asked == []


def test_made_up_tokens_are_asked_about_at_a_bounded_rate(api: Api, folder: Path) -> None:
    """Or anybody could flood the API through the service; a token that is proven already is let in meanwhile."""
    door = Door(api, folder)
    assert door.enter(made_up()) == "client:dashboard"
    api.answer = lambda: review(authenticated=False)
    refused: list[TussockError] = []
    for serial in range(1, ASKED_BURST + 50):
        with pytest.raises(TussockError) as raised:
            door.enter(made_up(serial=serial))
        refused.append(raised.value)
    assert isinstance(refused[-1], RateLimited)
    assert len(api.asked) == ASKED_BURST
    assert door.enter(made_up()) == "client:dashboard"


def test_proofs_that_are_kept_are_bounded() -> None:
    """More than can be asked for while one is kept need no place."""
    assert ASKED_BURST + ASKED_PER_SECOND * PROVEN_SECONDS < KEPT_MAX


def test_claims_and_names_of_accounts() -> None:
    """Of what is no token, or no service account, nothing."""
    assert unproven_claims(made_up()) == {"sub": ACCOUNT, "n": 0}
    assert account_of(ACCOUNT) == "shop/dashboard"
    assert [account_of(name) for name in ("system:serviceaccount:shop", "system:serviceaccount::x", "ann", None)] == [
        "",
        "",
        "",
        "",
    ]


def test_the_api_of_a_pod() -> None:
    """As Kubernetes tells each pod, also with an address of IPv6."""
    assert api_of_pod({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "https://10.0.0.1:443"
    assert api_of_pod({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT_HTTPS": "6443"}) == (
        "https://[fd00::1]:6443"
    )
    assert api_of_pod({}) == ""


@pytest.mark.parametrize("missing", ["token", "ca.crt", ""])
def test_a_folder_without_the_files_is_refused(api: Api, folder: Path, missing: str) -> None:
    """At the start; so is an empty token."""
    if missing:
        (folder / missing).unlink()
    else:
        (folder / "token").write_text(" \n")
    with pytest.raises(InvalidOption, match=missing or "holds no token"):
        TokenReviews(FakeSystem(), api.url, AUDIENCE, str(folder))


@pytest.mark.parametrize("account", ["dashboard", "shop/", "/x", "Shop/x", "shop/x/y"])
def test_an_account_has_a_namespace(api: Api, folder: Path, account: str) -> None:
    with pytest.raises(InvalidOption, match=r"service_accounts\.0"):
        Door(api, folder, CLIENTS.replace("shop/dashboard", account))
