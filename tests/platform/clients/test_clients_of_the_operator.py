"""Clients that the operator declares, at a real service: by its certificates and its file, and out within seconds."""

import base64
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from support.operator.clients import client_with
from support.operator.compute_cases import compute_with
from support.operator.resources import DEFAULTS, meta_with, store_with
from support.service.meta_process import MetaProcess
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.operator.certificates.renewal import renew_certificates, renew_own_certificate
from tussock.operator.manifests.certificates import client_certificate, desired_certificates, job_certificate
from tussock.operator.manifests.meta_config import clients_file
from tussock.operator.manifests.transport_security import role_patterns, server_name
from tussock.operator.planning.clients.declarations import declare
from tussock.operator.resources.client import StateStoreClient
from tussock.operator.resources.compute import Compute

STORE = store_with({"managed": {}}, allowedNamespaces=["team"])
CI = {"issuer": "https://ci.example", "audience": "tussock", "subject": "repo:shop"}
DASHBOARD, IMPORTER = client_with(), client_with("importer", role="writer", tables=["orders"])
BUILDS = client_with("builds", oidc=[CI])
ELSEWHERE = compute_with(namespace="team", storeRef={"name": "shop", "namespace": "data"})
FILES = ("ca.crt", "tls.key", "tls.crt")


class Service:
    """A node with the store's certificate and roles, the operator's file, and calls with each client's certificate."""

    def __init__(self, folder: Path) -> None:
        now, wanted = datetime.now(UTC), desired_certificates(STORE, ("shop",), DEFAULTS)
        found = {one["metadata"]["name"]: one["data"] for one in renew_certificates(STORE, wanted, {}, now)}
        self._secrets = found
        self._now = now
        self._file = folder / "clients.toml"
        for name in FILES:
            (folder / name).write_bytes(base64.b64decode(found["shop-meta-tls"][name]))
        roles = [
            part for role, names in role_patterns(STORE).items() for part in (f"--tls.roles.{role}", ",".join(names))
        ]
        shown = [f"--tls.certificate={folder / 'tls.crt'}", f"--tls.key={folder / 'tls.key'}"]
        shown += [f"--tls.client-ca={folder / 'ca.crt'}", f"--clients.file={self._file}"]
        self.declare()
        self.process = MetaProcess((folder / "bucket").as_uri(), *shown, *roles)
        self.process.wait_until_it_leads()

    def declare(self, *clients: StateStoreClient | Compute) -> None:
        """Write the file as the operator does, in one step as a kubelet does."""
        entries = tuple(declare(STORE, clients).entries.values())
        beside = self._file.with_suffix(".new")
        beside.write_text(clients_file(meta_with(), entries))
        os.replace(beside, self._file)

    def channel(self, client: StateStoreClient | Compute) -> grpc.Channel:
        """A connection with the certificate that the operator issues for a client, or for a job."""
        is_job = isinstance(client, Compute)
        wanted = job_certificate(client, STORE) if is_job else client_certificate(client, STORE)
        name = wanted.secret
        made = renew_own_certificate(client, STORE, wanted, self._secrets, self._now)
        if made is not None:
            self._secrets[name] = made["data"]
        files = [base64.b64decode(self._secrets[name][file]) for file in FILES]
        options = [("grpc.ssl_target_name_override", server_name(STORE))]
        return grpc.secure_channel(self.process.address, grpc.ssl_channel_credentials(*files), options)

    def code(self, client: StateStoreClient | Compute, method: str = "ListPins") -> grpc.StatusCode:
        """What a call of the client gets."""
        with self.channel(client) as channel:
            call = channel.unary_unary(METHODS[method].path).future(
                METHODS[method].request().SerializeToString(), metadata=[("tussock-protocol", "1")], timeout=60
            )
            return call.code()

    def await_code(self, client: StateStoreClient | Compute, code: grpc.StatusCode) -> None:
        """Wait until the node has read the file, which takes a second or two."""
        deadline = time.monotonic() + 20
        while (found := self.code(client)) is not code:
            assert time.monotonic() < deadline, found


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    with made.process:
        yield made


def subscribed(channel: grpc.Channel) -> Iterator[bytes]:
    """The stream of a new session."""
    session, metadata = "0123456789abcdef" * 2, [("tussock-protocol", "1")]
    opening = pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="raw").SerializeToString()
    channel.unary_unary(METHODS["OpenSession"].path)(opening, metadata=metadata, timeout=60)
    asked = pb.SubscribeRequest(session_id=session).SerializeToString()
    stream: Iterator[bytes] = channel.unary_stream(METHODS["Subscribe"].path)(asked, metadata=metadata, timeout=60)
    return stream


def test_a_client_is_let_in_when_it_is_declared_and_out_when_it_is_revoked(service: Service) -> None:
    """With its stream, within about two seconds; another one goes on, and a deletion does the same."""
    assert service.code(DASHBOARD) is grpc.StatusCode.PERMISSION_DENIED
    service.declare(DASHBOARD, IMPORTER)
    service.await_code(DASHBOARD, grpc.StatusCode.OK)
    with service.channel(DASHBOARD) as channel:
        stream = subscribed(channel)
        began = time.monotonic()
        service.declare(client_with(revoked=True), IMPORTER)
        told = [pb.Event.FromString(event) for event in stream]
        assert time.monotonic() - began < 2.5
        assert "the client 'dashboard' is revoked" in told[-1].closing.reason
    assert service.code(DASHBOARD) is grpc.StatusCode.UNAUTHENTICATED
    assert service.code(IMPORTER) is grpc.StatusCode.OK
    service.declare(DASHBOARD)
    service.await_code(DASHBOARD, grpc.StatusCode.OK)
    assert service.code(IMPORTER) is grpc.StatusCode.PERMISSION_DENIED


def test_a_former_key_and_a_certificate_for_the_connection_alone_open_nothing(service: Service) -> None:
    """Neither has a role, and no declaration names them; the certificate of the new version is taken."""
    service.declare(client_with(certificateVersion=2), BUILDS)
    service.await_code(client_with(certificateVersion=2), grpc.StatusCode.OK)
    assert service.code(client_with()) is grpc.StatusCode.PERMISSION_DENIED
    assert service.code(BUILDS) is grpc.StatusCode.PERMISSION_DENIED


def test_a_job_of_another_namespace_is_let_in_while_the_store_grants_it(service: Service) -> None:
    """As a writer, by its declaration alone; its stream ends about two seconds after the grant."""
    assert service.code(ELSEWHERE) is grpc.StatusCode.PERMISSION_DENIED
    service.declare(ELSEWHERE)
    service.await_code(ELSEWHERE, grpc.StatusCode.OK)
    with service.channel(ELSEWHERE) as channel:
        stream = subscribed(channel)
        began = time.monotonic()
        service.declare()
        told = [pb.Event.FromString(event) for event in stream]
        assert time.monotonic() - began < 2.5
        assert "the client 'compute/team/totals' was taken out" in told[-1].closing.reason
    assert service.code(ELSEWHERE) is grpc.StatusCode.PERMISSION_DENIED
