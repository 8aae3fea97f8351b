"""Clients that verify every replica against one name, at whatever address they reach it."""

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.network.certificates import Authority
from support.service.platforms import Replica
from support.store.versions import FakeSystem
from support.waiting import eventually
from tussock.cli.main import main
from tussock.meta.node.auth.tls import server_credentials
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.statestore import StateStore, connect
from tussock.statestore.base.identity import access_from
from tussock.statestore.errors import InvalidOption, MetaUnavailable

NAME = "tussock-meta.store.svc"


class Replicas:
    """Two replicas on one store, each with a certificate that is for `NAME`, and for no address."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        options = NodeOptions(store_url=(folder / "store").as_uri(), address="127.0.0.1:0")
        self.all = [Replica(options, credentials=self._credentials(f"meta-{number}")) for number in range(2)]

    def _credentials(self, subject: str):
        pair = self.authority.sign(subject, names=f"DNS:{NAME}")
        return server_credentials(str(pair.certificate), str(pair.key), "", FakeSystem())

    def follower(self) -> Replica:
        """The replica that does not lead, once the other one does and it knows that."""
        eventually(lambda: any(replica.node.is_leader for replica in self.all))
        (leader,) = (replica for replica in self.all if replica.node.is_leader)
        (follower,) = (replica for replica in self.all if replica is not leader)
        eventually(lambda: follower.node.leader_address == leader.address)
        return follower


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    replicas = Replicas(tmp_path_factory.mktemp("named"))
    yield replicas
    for replica in replicas.all:
        replica.stop()
    gc.collect()


@pytest.fixture
def connect_to(replicas: Replicas) -> Callable[..., StateStore]:
    """A store opened through the follower, so that the client is redirected to the leader."""
    return lambda **options: connect(
        f"tussock://{replicas.follower().address}", tls_ca=str(replicas.authority.certificate), deadline=10.0, **options
    )


def test_one_name_is_good_for_all_replicas(connect_to: Callable[..., StateStore]) -> None:
    """Clients reach them by IP address, the first by its URL and the second by a redirect."""
    with connect_to(tls_server_name=NAME) as store:
        store.create_table("option")
        assert "option" in store.tables()


def test_name_comes_from_the_environment(
    connect_to: Callable[..., StateStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUSSOCK_TLS_SERVER_NAME", NAME)
    with connect_to() as store:
        store.create_table("environment")


@pytest.mark.parametrize("given", [{}, {"tls_server_name": "tussock-meta.other.svc"}], ids=["none", "another"])
def test_replica_whose_certificate_lacks_the_name_is_not_trusted(
    connect_to: Callable[..., StateStore], given: dict[str, str]
) -> None:
    """The certificate is of the right CA, but for another address and another service."""
    with pytest.raises(MetaUnavailable, match=r"(?i)hostname verification"):
        connect_to(**given)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tussock", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_commands_use_the_name(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The given follower redirects them to the leader, which is verified against the same name."""
    given = ("--meta", replicas.follower().address, "--tls-ca", str(replicas.authority.certificate))
    named = (*given, "--tls-server-name", NAME)
    assert run(monkeypatch, "pause", "--reason", "a test", *named) == 0
    assert run(monkeypatch, "status", *named) == 0
    assert "paused (a test)" in capsys.readouterr().out
    assert run(monkeypatch, "resume", *named) == 0
    assert run(monkeypatch, "status", *given) == 1
    assert "no replica of the meta service answered" in capsys.readouterr().err


def test_the_chain_of_certificates_is_checked_too(replicas: Replicas, tmp_path: Path) -> None:
    """The right name in a certificate of an untrusted CA is worth nothing."""
    other = Authority(tmp_path, "other")
    with pytest.raises(MetaUnavailable, match=r"(?i)certificate_verify_failed"):
        connect(
            f"tussock://{replicas.all[0].address}", tls_ca=str(other.certificate), tls_server_name=NAME, deadline=10.0
        )


def test_name_without_tls_is_refused() -> None:
    """Nothing would check it, though the user who gave it believes that something does."""
    with pytest.raises(InvalidOption, match="tls_server_name is 'meta', but only TLS checks a name: give tls_ca"):
        access_from({"TUSSOCK_TLS_SERVER_NAME": "meta"})
    assert "tls_server_name='meta'" in repr(access_from({}, tls_ca="ca.pem", tls_server_name="meta"))
