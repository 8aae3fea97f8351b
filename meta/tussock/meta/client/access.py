"""From what a client may show to transports that show it, also after tokens and certificates were replaced.

A channel of gRPC keeps the certificates that it was made with. So when their files change, the next call makes a new
channel, and the old one is closed: whatever ran on it is repeated, as after any lost connection.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
from google.protobuf.message import Message

from tussock.meta.client.tls_mistakes import closes_for_tls
from tussock.meta.client.transport import Dial, EventStream, GrpcTransport, Transport
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import Method
from tussock.statestore.base.identity import SYSTEM_CA, Access
from tussock.statestore.base.pem import check_authority, check_pair
from tussock.statestore.base.system import System
from tussock.statestore.base.watched_files import WatchedFiles
from tussock.statestore.errors import InvalidOption

__all__ = ["channel_credentials", "dial_with", "token_source"]


def dial_with(access: Access, system: System) -> Dial:
    """Makes transports that use `access`; `InvalidOption` if a file of it cannot be used."""
    token_of = token_source(access, system)

    def metadata() -> tuple[tuple[str, str], ...]:
        token = token_of()
        return (("authorization", f"Bearer {token}"),) if token else ()

    def closes(address: str) -> bool:
        return closes_for_tls(address, access)

    files = channel_credentials(access, system)
    if files is None:
        return lambda address: GrpcTransport(address, None, metadata, closes_for_tls=closes)
    name = access.tls_server_name

    def make(address: str, credentials: grpc.ChannelCredentials) -> Transport:
        return GrpcTransport(address, credentials, metadata, name, closes_for_tls=closes)

    return lambda address: _Renewed(files, lambda credentials: make(address, credentials))


def channel_credentials(access: Access, system: System) -> WatchedFiles[grpc.ChannelCredentials] | None:
    """What a channel is made with, from files that may change; `None` without TLS. `InvalidOption` as above."""
    if not access.tls_ca:
        return None
    paths = [path for path in (access.tls_ca, access.tls_cert, access.tls_key) if path and path != SYSTEM_CA]

    def load(_: Sequence[str]) -> grpc.ChannelCredentials:
        ca = None if access.tls_ca == SYSTEM_CA else Path(access.tls_ca).read_bytes()
        if ca is not None:
            check_authority(access.tls_ca)
        if not access.tls_cert:
            return grpc.ssl_channel_credentials(ca)
        check_pair(access.tls_cert, access.tls_key)
        return grpc.ssl_channel_credentials(ca, Path(access.tls_key).read_bytes(), Path(access.tls_cert).read_bytes())

    return WatchedFiles(paths, load, system)


def token_source(access: Access, system: System) -> Callable[[], str]:
    """Tells the token at each moment, empty without one; `InvalidOption` if its file cannot be used."""
    if not access.token_file:
        return lambda: access.token

    def load(paths: Sequence[str]) -> str:
        expected = "it should hold the token alone, as `tussock meta token` shows it"
        try:
            token = Path(paths[0]).read_text(encoding="ascii", errors="replace").strip()
        except OSError as error:
            # The path is not repeated: it may be the token itself.
            raise InvalidOption(
                f"the file that TUSSOCK_TOKEN_FILE names cannot be read: {error.strerror}; {expected}"
            ) from None
        if not token:
            raise InvalidOption(f"{paths[0]}, which TUSSOCK_TOKEN_FILE names, is empty; {expected}", paths[0])
        if not (token.isascii() and token.isprintable()):
            raise InvalidOption(
                f"{paths[0]}, which TUSSOCK_TOKEN_FILE names, has more than one line, or characters that no token has; "
                f"{expected}",
                paths[0],
            )
        return token

    return WatchedFiles([access.token_file], load, system).current


class _Renewed:
    """A transport that is made anew when the certificates change. Safe to share between threads."""

    def __init__(
        self, files: WatchedFiles[grpc.ChannelCredentials], make: Callable[[grpc.ChannelCredentials], Transport]
    ) -> None:
        self._files = files
        self._make = make
        self._lock = threading.Lock()
        self._credentials = files.current()
        self._transport = make(self._credentials)

    def call(self, method: Method, request: Message, timeout: float) -> Message:
        return self._newest().call(method, request, timeout)

    def subscribe(self, request: pb.SubscribeRequest) -> EventStream:
        return self._newest().subscribe(request)

    def close(self) -> None:
        self._transport.close()

    def _newest(self) -> Transport:
        credentials = self._files.current()
        old = None
        with self._lock:
            if credentials is not self._credentials:
                old, self._transport, self._credentials = self._transport, self._make(credentials), credentials
            transport = self._transport
        if old is not None:
            old.close()
        return transport
