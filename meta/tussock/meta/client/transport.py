"""Calls to one replica. The connection decides which replica, how often and for how long; this only carries.

`GrpcTransport` is the real one; the simulator brings its own.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from tussock.meta.client.tls_mistakes import TlsMistake
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.errors import ERROR_METADATA, FAILED, TOO_MANY_CALLS, decode_error
from tussock.meta.rpc.methods import (
    KEEPING_ALIVE,
    METHODS,
    PIECE_BYTES_MAX,
    PROTOCOL_VERSION,
    Method,
    common_protocol,
)
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import MessageTooLarge, MetaUnavailable, ProtocolMismatch, TussockError

__all__ = ["CALLS_AT_ONCE", "Dial", "EventStream", "GrpcTransport", "Transport", "check_size"]


class EventStream(Protocol):
    """Events of a subscription; iterating waits for the next one, and ends when the stream does."""

    def __iter__(self) -> Iterator[pb.Event]:
        """The events. Raises `MetaUnavailable` if the connection breaks, or what the replica refused with."""

    def cancel(self) -> None:
        """End the iteration from another thread."""


class Transport(Protocol):
    """One replica, as seen from a client. Safe to share between threads."""

    def call(self, method: Method, request: Message, timeout: float) -> Message:
        """One unary call, not repeated.

        Raises the error that the replica answered with; `MetaUnavailable` if there was no answer within `timeout`
        seconds: then it is not known whether the call took effect.
        """

    def subscribe(self, request: pb.SubscribeRequest) -> EventStream:
        """Begin a subscription; returns at once. `MetaUnavailable` if the connection was closed."""

    def close(self) -> None:
        """Drop the connection."""


Dial = Callable[[str], Transport]
"""Makes a transport to an address."""

CONNECT_SECONDS = 2.0
"""Enough for TLS with another continent, and little beside an election. An attempt that is broken off sooner than the
way takes would fail again and again."""

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A replica that restarts is to be found again within its peers' election, not after gRPC's usual seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A Service that was made anew has another address; gRPC would ask for it after half a minute.
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]


LOOK_EVERY_SECONDS = 1.0
"""How often it is looked why a service closes connections; less than the distance at which two looks are needed."""

CALLS_AT_ONCE = 48
"""On one connection: the service takes 64, and a heartbeat must not wait for commits that wait for the bucket."""


class GrpcTransport:
    """A gRPC channel to one address."""

    def __init__(
        self,
        address: str,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Callable[[], tuple[tuple[str, str], ...]] = tuple,
        server_name: str = "",
        connect_seconds: float = CONNECT_SECONDS,
        closes_for_tls: Callable[[str], bool] = lambda _: False,
        protocol: int = PROTOCOL_VERSION,
    ) -> None:
        """Connects when it is first used.

        `metadata` is asked before each call (tokens). `server_name` is what the server's certificate must be for; the
        host of the address if empty. An attempt to connect may take `connect_seconds`, TLS and all. `closes_for_tls`
        says of an address that closes connections whether TLS is why; it is asked until there was an answer.
        `protocol` is spoken first, and a common one with a server that does not know it.
        """
        self.address = address
        self._metadata = metadata
        # gRPC's manual has this option for tests, but it still checks the chain, and the name given here.
        named = [("grpc.ssl_target_name_override", server_name)] if server_name else []
        # Whatever the name says, an attempt is broken off after this.
        options = [*_CHANNEL_OPTIONS, ("grpc.min_reconnect_backoff_ms", int(connect_seconds * 1000))]
        self._channel = (
            grpc.insecure_channel(address, options)
            if credentials is None
            else grpc.secure_channel(address, credentials, [*options, *named])
        )
        self._stubs = {
            method.name: self._channel.unary_unary(method.path, None, method.response.FromString)
            for method in METHODS.values()
            if not method.streams
        }
        # The same on the wire, but for requests that come in pieces.
        self._in_pieces = {
            method.name: self._channel.stream_unary(method.path, None, method.response.FromString)
            for method in METHODS.values()
            if not method.bytes_max or method.bytes_max > PIECE_BYTES_MAX
        }
        self._is_secure = credentials is not None
        self._closes_for_tls = closes_for_tls
        self._looked: tuple[float, bool] = (float("-inf"), False)
        self._is_answered = False
        self._protocol = protocol
        self._system = RealSystem()
        self._room = threading.BoundedSemaphore(CALLS_AT_ONCE)
        subscribe = METHODS["Subscribe"]
        self._subscribe = self._channel.unary_stream(
            subscribe.path,
            request_serializer=subscribe.request.SerializeToString,
            response_deserializer=subscribe.response.FromString,
        )

    def call(self, method: Method, request: Message, timeout: float) -> Message:
        """One unary call; those that keep a session alive wait for no others.

        An interrupt of the main thread ends its wait, not the call: the locks that it takes would stay taken.
        """
        return self._system.uninterrupted(lambda: self._call_in_turn(method, request, timeout))

    def _call_in_turn(self, method: Method, request: Message, timeout: float) -> Message:
        if method.name in KEEPING_ALIVE:
            return self._call(method, request, timeout)
        began = self._system.monotonic()
        if not self._room.acquire(timeout=timeout):
            raise MetaUnavailable(
                f"{method.name} on the meta service at {self.address}: {CALLS_AT_ONCE} calls of this client wait for "
                "their answers already",
                self.address,
            )
        try:
            return self._call(method, request, max(0.0, timeout - (self._system.monotonic() - began)))
        finally:
            self._room.release()

    def _call(self, method: Method, request: Message, timeout: float) -> Message:
        data = request.SerializeToString()
        try:
            return self._once(method, data, timeout)
        except ProtocolMismatch as error:
            # A service that is older, or newer, may know another protocol that this release knows, too.
            common = common_protocol(*_protocols_of(error))
            if common is None or common == self._protocol:
                raise
            self._protocol = common
            return self._once(method, data, timeout)

    def _once(self, method: Method, data: bytes, timeout: float) -> Message:
        metadata = self._all_metadata()
        try:
            if len(data) > PIECE_BYTES_MAX and method.name in self._in_pieces:
                pieces = (data[at : at + PIECE_BYTES_MAX] for at in range(0, len(data), PIECE_BYTES_MAX))
                answer: Message = self._in_pieces[method.name](pieces, timeout, metadata)
            else:
                answer = self._stubs[method.name](data, timeout, metadata)
        except grpc.RpcError as error:
            raise self._with_reason(_translate(self.address, method.name, error, is_secure=self._is_secure)) from None
        except ValueError as error:
            raise _channel_closed(self.address, method.name, error) from None
        self._is_answered = True
        return answer

    def subscribe(self, request: pb.SubscribeRequest) -> EventStream:
        """Begin a subscription."""
        try:
            call = self._subscribe(request, metadata=self._all_metadata())
            return _GrpcStream(self.address, call, is_secure=self._is_secure)
        except ValueError as error:
            raise _channel_closed(self.address, "Subscribe", error) from None

    def close(self) -> None:
        """Close the channel; calls in flight fail."""
        self._channel.close()

    def _with_reason(self, error: TussockError) -> TussockError:
        """The error, as a `TlsMistake` if the service closes connections for TLS."""
        if not isinstance(error, MetaUnavailable):
            self._is_answered = True
        if self._is_answered or "Socket closed" not in str(error):
            return error
        now = self._system.monotonic()
        if now - self._looked[0] >= LOOK_EVERY_SECONDS:
            self._looked = (now, self._closes_for_tls(self.address))
        return TlsMistake(*error.args) if self._looked[1] else error

    def _all_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("tussock-protocol", str(self._protocol)), *self._metadata())


def check_size(name: str, request: Message, bytes_max: int) -> None:
    """Raise `MessageTooLarge` for what the leader would refuse; 0 if it has not said what that is."""
    size = request.ByteSize()
    if bytes_max and size > bytes_max:
        raise MessageTooLarge(
            f"{name} would send {size} bytes and the meta service takes {bytes_max}; commit less at once, or raise its "
            "limits.message_bytes",
            size,
            bytes_max,
        )


class _GrpcStream:
    def __init__(self, address: str, call: Any, *, is_secure: bool) -> None:
        self._address = address
        self._call = call
        self._is_secure = is_secure

    def __iter__(self) -> Iterator[pb.Event]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.CANCELLED:
                raise _translate(self._address, "Subscribe", error, is_secure=self._is_secure) from None

    def cancel(self) -> None:
        with contextlib.suppress(ValueError):
            self._call.cancel()


def _protocols_of(error: ProtocolMismatch) -> Sequence[int]:
    """The oldest and the newest protocol of the service that refused a call by this error."""
    found = [fact for fact in error.args[2:4] if isinstance(fact, int)]
    return (min(found), max(found)) if found else (0, 0)


def _channel_closed(address: str, method: str, error: ValueError) -> MetaUnavailable:
    """What gRPC says by a plain `ValueError`: another thread closed the channel, or put a newer one in its place."""
    return MetaUnavailable(f"{method} on the meta service at {address}: {error}", address)


_HINTS = {
    (False, "Socket closed"): "if the service speaks TLS, give its CA: tls_ca, or TUSSOCK_TLS_CA",
    (True, "Socket closed"): "if the service asks clients for certificates, give tls_cert and tls_key, of a CA that it "
    "trusts (its tls.client_ca)",
    (True, "WRONG_VERSION_NUMBER"): "the service speaks no TLS: leave tls_ca, tls_cert and tls_key out",
    (True, "CERTIFICATE_VERIFY_FAILED"): "the service's certificate is not by the CA that tls_ca names",
    (
        True,
        "Hostname Verification Check failed",
    ): "the service's certificate is for other names: connect by one of them, or give it as tls_server_name",
    (
        True,
        "missing selected ALPN",
    ): "what answers there is no gRPC port: give the one of `listen`, not of `http_listen`",
}
"""What to do, by whether the client speaks TLS and by what gRPC says of a connection that did not come about."""

_PROVEN = {hint for hint in _HINTS if hint[1] != "Socket closed"}
"""Those that a handshake shows. A socket is also closed by what restarts."""


def _translate(address: str, method: str, error: Any, *, is_secure: bool) -> TussockError:
    """The error that the replica raised, or `MetaUnavailable` where it did not speak."""
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_METADATA:
            return decode_error(value)
    code, details = error.code(), " ".join(str(error.details()).split())[:300]
    text = f"{method} on the meta service at {address}: {code.name}: {details}"
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "metadata size" in details:
        return MessageTooLarge(f"{text}; the token, or what else goes with each call, is too long")
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and not details.startswith(TOO_MANY_CALLS):
        # What gRPC refuses itself, before our code has seen the call.
        return MessageTooLarge(f"{text}; send less at once, or raise the service's limits.message_bytes")
    if code == grpc.StatusCode.INTERNAL and details.startswith(FAILED):
        # The service itself failed: asked again, it would fail again.
        return TussockError(text)
    hints = {known: hint for known, hint in _HINTS.items() if known[0] == is_secure and known[1] in details}
    kind = TlsMistake if hints.keys() & _PROVEN else MetaUnavailable
    return kind("; ".join([text, *hints.values()]), address)
