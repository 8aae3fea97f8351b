"""The channel of a client to an application, with token and certificates that may change."""

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from tussock.compute.applications.errors import ServiceUnavailable
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.application_errors import error_of
from tussock.compute.service.rpc.kinds import CONVERSE, ERROR_METADATA, PROTOCOL, PROTOCOL_METADATA, WORK
from tussock.meta.client.access import channel_credentials, token_source
from tussock.statestore.base.identity import Access
from tussock.statestore.base.system import System
from tussock.statestore.errors import TussockError

__all__ = ["OPTIONS", "ApplicationChannel"]

CONNECT_MS = 2000
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A node that restarts is to be found again within moments, not after gRPC's usual seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]


class ApplicationChannel:
    """One address. Used by one thread, except `close`."""

    def __init__(
        self, address: str, access: Access, system: System, options: Sequence[tuple[str, int]] = OPTIONS
    ) -> None:
        """Connects when it is first used; `InvalidOption` if a file of `access` cannot be used.

        `options` are gRPC's own.
        """
        self.address = address
        self._options = options
        self._token = token_source(access, system)
        self._files = channel_credentials(access, system)
        self._server_name = access.tls_server_name
        self._credentials = self._files.current() if self._files is not None else None
        self._channel = self._make()

    def converse(self, messages: Any) -> Any:
        """Begin a conversation: `messages` yields serialized `Requests`; returns an iterator of `Replies`."""
        parse: Callable[[bytes], Any] = pb.Replies.FromString
        return self._begin(CONVERSE, messages, parse)

    def work(self, messages: Any) -> Any:
        """Offer oneself as a worker: `messages` yields serialized `WorkerPart`s, and so does what this returns."""
        return self._begin(WORK, messages, None)

    def _begin(self, method: str, messages: Any, parse: Callable[[bytes], Any] | None) -> Any:
        if self._files is not None and self._files.current() is not self._credentials:
            self._channel.close()
            self._credentials = self._files.current()
            self._channel = self._make()
        token = self._token()
        metadata: tuple[tuple[str, str | bytes], ...] = ((PROTOCOL_METADATA, str(PROTOCOL)),)
        if token:
            metadata += (("authorization", f"Bearer {token}"),)
        return self._channel.stream_stream(method, None, parse)(messages, metadata=metadata)

    def error_of(self, error: Any) -> TussockError:
        """What a `grpc.RpcError` tells: the node's own error, or `ServiceUnavailable`."""
        for key, value in error.trailing_metadata() or ():
            if key == ERROR_METADATA:
                return error_of(pb.Error.FromString(value))
        details = " ".join(str(error.details()).split())[:300]
        text = f"the application at {self.address}: {error.code().name}: {details}"
        if error.code() == grpc.StatusCode.UNIMPLEMENTED:
            # Any server of gRPC that does not know the call; a platform's commands look much the same.
            text += "; what answers there is no application: if it is a meta service, give its address by --meta"
        return ServiceUnavailable(text)

    def close(self) -> None:
        """End what runs on it."""
        self._channel.close()

    def _make(self) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(self.address, self._options)
        # gRPC's manual has this option for tests, but it still checks the chain, and the name given here.
        named = [("grpc.ssl_target_name_override", self._server_name)] if self._server_name else []
        return grpc.secure_channel(self.address, self._credentials, [*self._options, *named])
