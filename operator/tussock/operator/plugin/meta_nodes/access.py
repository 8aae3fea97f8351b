"""The way to a meta node: certificates that the user may read, and calls over a forwarded port."""

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from google.protobuf.message import Message

from tussock.meta.client.transport import GrpcTransport
from tussock.meta.rpc.methods import METHODS
from tussock.operator.manifests.transport_security import Identity, has_tls, tls_secret
from tussock.operator.plugin.kubectl import Kubectl, KubectlFailed
from tussock.operator.probes.platform import Certificates
from tussock.operator.resources.store import StoreResource

__all__ = ["AskedMeta", "certificates_of", "meta_node"]

ANSWER_SECONDS = 10.0


class AskedMeta:
    """One replica of a meta service."""

    def __init__(self, transport: GrpcTransport) -> None:
        self._transport = transport

    def call(self, method: str, request: Message) -> Message:
        """Its answer; raises the error that it answers, or `MetaUnavailable`."""
        return self._transport.call(METHODS[method], request, ANSWER_SECONDS)


def certificates_of(kubectl: Kubectl, store: StoreResource, identity: Identity = "client-admin") -> Certificates | None:
    """The certificate of a client of that store, from the secret; `None` without TLS.

    `KubectlFailed` if the user may not read it, or if it is not whole.
    """
    if not has_tls(store):
        return None
    name = tls_secret(store, identity)
    data = kubectl.object("secrets", name).get("data") or {}
    files = ("ca.crt", "tls.crt", "tls.key")
    try:
        values = [base64.b64decode(data.get(file, ""), validate=True) for file in files]
    except binascii.Error:
        values = []
    if not values or not all(values):
        raise KubectlFailed(
            f"Secret {name} does not hold {', '.join(files)}; the operator writes it when it gets its turn, or with "
            "tls.mode secret its owner"
        )
    return Certificates(*values)


@contextmanager
def meta_node(address: str, name: str, certificates: Certificates | None) -> Iterator[AskedMeta]:
    """The replica at `host:port`, which may be the end of a forwarded port; with TLS its certificate has that name."""
    credentials = None
    if certificates is not None:
        credentials = grpc.ssl_channel_credentials(certificates.ca, certificates.key, certificates.certificate)
    # The way is long, through the API server and a kubelet, and kubectl closes the port after one broken attempt.
    named = name if credentials else ""
    transport = GrpcTransport(address, credentials, server_name=named, connect_seconds=ANSWER_SECONDS)
    try:
        yield AskedMeta(transport)
    finally:
        transport.close()
