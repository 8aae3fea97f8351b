"""What a client refuses before it sends anything, and what it never repeats."""

import pytest

from tussock.statestore import connect
from tussock.statestore.errors import AccessDenied, InvalidOption, MetaUnavailable, TussockError, Unauthenticated


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tls_cert": "c"}, "belong together"),
        ({"tls_cert": "c", "tls_key": "k"}, "tls_ca"),
        ({"tls_ca": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be read"),
        ({"token": "a\nb"}, "not shown"),
    ],
)
def test_malformed_options_of_a_client_are_refused(options: dict[str, str], text: str) -> None:
    """The refusal comes before anything is sent."""
    with pytest.raises(InvalidOption, match=text):
        connect("tussock://127.0.0.1:1", **options)


def test_embedded_store_refuses_a_token() -> None:
    """A token that is never checked is a misunderstanding."""
    with pytest.raises(InvalidOption, match="token: only a meta service"):
        connect("memory://", token="x")


def test_errors_of_access_are_not_retried() -> None:
    """A client does not repeat a call that will be refused again."""
    for kind in (Unauthenticated, AccessDenied):
        assert issubclass(kind, TussockError)
        assert issubclass(kind, PermissionError)
        assert not issubclass(kind, MetaUnavailable)


@pytest.mark.parametrize(
    "replicas", ["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:1, 127.0.0.2:1", "a b:1", "a\t:1", "a/b:1", "127.0.0.1:1/b"]
)
def test_addresses_that_no_replica_can_have_are_refused_at_once(replicas: str) -> None:
    """A blank after a comma was looked up as a part of the name, for as long as the deadline."""
    with pytest.raises(InvalidOption, match="does not name a meta service: expected HOST:PORT, or several with commas"):
        connect(f"tussock://{replicas}", deadline=60.0)
