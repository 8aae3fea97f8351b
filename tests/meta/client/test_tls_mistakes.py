"""When a client gives up because of TLS: pure rules first, then a connection whose replicas fail as told."""

from collections.abc import Callable

import pytest

from support.store.versions import FakeSystem
from tussock.meta.client.connection import MetaConnection
from tussock.meta.client.tls_mistakes import SECONDS_APART, TlsMistake, TlsMistakes
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.errors import MetaUnavailable, NotLeader, TussockError, Unauthenticated

MISTAKE, SILENCE = TlsMistake("wrong CA", "a:1"), MetaUnavailable("silence", "b:1")
Attempt = tuple[str, float, bool]


def after(*attempts: Attempt) -> TlsMistakes:
    seen = TlsMistakes()
    for address, now, is_mistake in attempts:
        seen = seen.after(address, now, MISTAKE if is_mistake else SILENCE)
    return seen


@pytest.mark.parametrize(
    ("attempts", "hopeless"),
    [
        ((), False),
        ((("a", 0.0, True),), False),
        ((("a", 0.0, True), ("a", SECONDS_APART - 0.1, True)), False),
        ((("a", 0.0, True), ("a", SECONDS_APART, True)), True),
        ((("a", 9.0, True), ("a", 9.1, True), ("a", 9.0 + SECONDS_APART, True)), True),
        ((("a", 0.0, True), ("a", 1.0, False), ("a", 2.0, True)), False),
        ((("a", 0.0, True), ("a", 1.0, False), ("a", 2.0, True), ("a", 3.5, True)), True),
        ((("a", 0.0, True), ("a", 2.0, True), ("a", 2.1, False)), False),
    ],
)
def test_one_replica_is_hopeless_after_two_mistakes_apart(attempts: tuple[Attempt, ...], hopeless: bool) -> None:
    """Whatever else went wrong in between begins the count anew."""
    assert after(*attempts).are_hopeless(["a"]) is hopeless


def test_all_replicas_have_to_be_hopeless() -> None:
    """One that is only silent may be the right one."""
    seen = after(("a", 0.0, True), ("b", 0.1, True), ("a", 2.0, True))
    assert not seen.are_hopeless(["a", "b"])
    assert not seen.are_hopeless(["a", "c"])
    assert seen.after("b", 2.1, MISTAKE).are_hopeless(["a", "b"])


@pytest.mark.parametrize("answer", [None, NotLeader("follows", ""), Unauthenticated("no token")])
def test_nothing_is_hopeless_after_an_answer(answer: TussockError | None) -> None:
    """Or after a refusal, which is one: what fails then is being replaced."""
    seen = after(("a", 0.0, True)).after("a", 0.5, answer)
    for now in (1.0, 9.0):
        seen = seen.after("a", now, MISTAKE)
    assert not seen.are_hopeless(["a"])


class Replica:
    """The way to a replica that fails as told."""

    def __init__(self, fail: Callable[[], None]) -> None:
        self._fail = fail

    def call(self, *_: object) -> pb.GetStatusResponse:
        self._fail()
        return pb.GetStatusResponse()

    def close(self) -> None: ...


def fails_with(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("kind", "errors", "seconds"),
    [
        (pb.CLIENT, [MISTAKE], 1.5),
        (pb.CLIENT, [MISTAKE, MISTAKE], 1.6),
        (pb.CLIENT, [MISTAKE, SILENCE], 30.0),
        (pb.CLIENT, [MISTAKE, NotLeader("follows", "")], 30.0),
        (pb.COMPACTOR, [MISTAKE], 30.0),
    ],
)
def test_a_client_gives_up_once_every_replica_is_hopeless(
    kind: pb.SessionKind, errors: list[Exception], seconds: float
) -> None:
    """With the words that it would have at its deadline. A compactor waits until an operator mends the service."""
    system = FakeSystem()
    ways = {f"{letter}:1": Replica(fails_with(error)) for letter, error in zip("ab", errors, strict=False)}
    connection = MetaConnection(list(ways), system, ways.__getitem__, name="test", kind=kind)  # type: ignore[arg-type]
    began = system.monotonic()
    with pytest.raises(
        MetaUnavailable, match="GetStatus: no leader of the meta service answered in time; a:1: wrong CA"
    ):
        connection.call("GetStatus", pb.GetStatusRequest())
    assert system.monotonic() - began == pytest.approx(seconds, abs=0.2)


def test_a_client_that_had_an_answer_waits_until_its_deadline() -> None:
    """Then the certificate of the service is being replaced."""
    system, errors = FakeSystem(), []
    way = Replica(lambda: errors and fails_with(errors[0])())
    connection = MetaConnection(["a:1"], system, lambda _: way, name="test")  # type: ignore[arg-type,return-value]
    connection.call("GetStatus", pb.GetStatusRequest())
    errors.append(MISTAKE)
    began = system.monotonic()
    with pytest.raises(MetaUnavailable):
        connection.call("GetStatus", pb.GetStatusRequest())
    assert system.monotonic() - began == pytest.approx(30.0, abs=0.2)
