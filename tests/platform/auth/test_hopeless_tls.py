"""Options of TLS that can never work, against a real service: clients say so soon, and wait where it may get better."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from support.network.certificates import Authority
from support.network.proxies import ClosingPort
from support.service.meta_process import MetaProcess
from support.waiting import WAIT_SECONDS
from tussock.meta.client.tls_mistakes import closes_for_tls
from tussock.statestore import connect
from tussock.statestore.base.identity import Access
from tussock.statestore.errors import MetaUnavailable

DEADLINE = 90.0
SOON = 20.0
"""Of a machine with other work; alone it takes 1.6 s."""


class Service(NamedTuple):
    """A service that asks for certificates, one without TLS, and what clients may show them."""

    guarded: MetaProcess
    plain: MetaProcess
    good: dict[str, str]
    foreign: dict[str, str]


def shown(authority: Authority, trusted: Authority) -> dict[str, str]:
    pair = authority.sign("worker")
    return {"tls_ca": str(trusted.certificate), "tls_cert": str(pair.certificate), "tls_key": str(pair.key)}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("mistakes")
    authority, other = Authority(folder), Authority(folder, "other")
    server = authority.sign("meta")
    files = ("--tls.certificate", str(server.certificate), "--tls.key", str(server.key))
    clients = ("--tls.client-ca", str(authority.certificate), "--tls.roles.admin", "CN:worker")
    with (
        MetaProcess((folder / "guarded").as_uri(), *files, *clients) as guarded,
        MetaProcess((folder / "plain").as_uri()) as plain,
    ):
        for process in (guarded, plain):
            process.wait_until_it_leads()
        yield Service(guarded, plain, shown(authority, authority), shown(other, authority))


def given_up(url: str, **options: str) -> str:
    """The error of a client that gives up long before its deadline."""
    began = time.monotonic()
    with pytest.raises(MetaUnavailable) as raised:
        connect(url, deadline=DEADLINE, **options)
    assert time.monotonic() - began < SOON
    return str(raised.value)


def test_mistakes_of_a_client_are_told_soon(service: Service) -> None:
    """No TLS, no certificate, one of another CA, a wrong CA and a wrong name."""
    url, good = service.guarded.url, service.good
    assert "give its CA: tls_ca, or TUSSOCK_TLS_CA" in given_up(url)
    assert "give tls_cert and tls_key" in given_up(url, tls_ca=good["tls_ca"])
    assert "of a CA that it trusts" in given_up(url, **service.foreign)
    wrong_ca = service.foreign["tls_cert"]
    assert "not by the CA that tls_ca names" in given_up(url, **{**good, "tls_ca": wrong_ca})
    assert "for other names" in given_up(url, **good, tls_server_name="elsewhere")
    with connect(url, **good) as store:
        assert store.tables() == []


def test_a_mistake_is_told_once(service: Service) -> None:
    """The error of the client is all: nothing is written by gRPC about each handshake."""
    program = (
        "import sys\nfrom tussock.statestore import connect\nfrom tussock.statestore.errors import MetaUnavailable\n"
        "try:\n    connect(sys.argv[1], tls_ca=sys.argv[2], deadline=30)\n"
        "except MetaUnavailable as error:\n    print(error)"
    )
    wrong_ca = service.foreign["tls_cert"]
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    ran = subprocess.run(
        [sys.executable, "-c", program, service.guarded.url, wrong_ca],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert ran.stderr == ""
    assert "not by the CA that tls_ca names" in ran.stdout


def test_a_service_without_tls_is_told_soon(service: Service) -> None:
    """It answers a handshake of TLS with something else."""
    assert "speaks no TLS: leave tls_ca" in given_up(service.plain.url, tls_ca=service.good["tls_ca"])


def test_the_http_port_is_told_from_the_grpc_port(service: Service) -> None:
    """Both speak TLS with one certificate; only one speaks HTTP/2."""
    url = f"tussock://{service.guarded.http}"
    assert "no gRPC port: give the one of `listen`, not of `http_listen`" in given_up(url, **service.good)


@pytest.mark.parametrize("is_guarded", [True, False])
def test_a_way_that_is_closed_for_some_seconds_is_waited_for(service: Service, is_guarded: bool) -> None:
    """A replica that restarts looks to gRPC like one that wants a certificate: the client looks why, and waits."""
    process, options = (service.guarded, service.good) if is_guarded else (service.plain, {})
    with ClosingPort(process.address) as way:
        threading.Timer(4.0, lambda: setattr(way, "is_closing", False)).start()
        with connect(f"tussock://{way.address}", deadline=DEADLINE, **options) as store:
            assert store.tables() == []
        assert way.closed > 1


def test_what_closes_without_a_handshake_says_nothing_of_tls(service: Service) -> None:
    """A port that nobody has, one that closes, one that is silent, a service that takes the client, one without TLS."""
    client, bare = Access(**service.good), Access()
    with ClosingPort(service.guarded.address) as closing, socket.create_server(("127.0.0.1", 0)) as silent:
        silent_address = f"127.0.0.1:{silent.getsockname()[1]}"
        for address in ("127.0.0.1:1", "nowhere.invalid:7370", closing.address, silent_address):
            assert not closes_for_tls(address, client)
            assert not closes_for_tls(address, bare)
    assert not closes_for_tls(service.guarded.address, client)
    assert not closes_for_tls(service.plain.address, bare)
    assert not closes_for_tls(service.plain.address, client)
    assert closes_for_tls(service.guarded.address, bare)
    assert closes_for_tls(service.guarded.address, Access(tls_ca=service.good["tls_ca"]))
    assert closes_for_tls(service.guarded.address, Access(**service.foreign))
