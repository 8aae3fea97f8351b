"""A meta service that asks for tokens, as a separate process, and callers that may be hostile."""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from support.service.meta_process import MetaProcess
from tussock.meta.node.auth.tokens import ROLES, create_token
from tussock.meta.rpc.errors import ERROR_METADATA, decode_error
from tussock.meta.rpc.methods import METHODS, PIECE_BYTES_MAX
from tussock.statestore import StateStore, connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import TussockError

CALL_SECONDS = 60


class Caller:
    """A bare gRPC client, without the manners of Tussock's."""

    def __init__(self, address: str, token: str | None) -> None:
        self.channel = grpc.insecure_channel(
            address, [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        )
        self.metadata = [("tussock-protocol", "1")]
        if token is not None:
            self.metadata.append(("authorization", f"Bearer {token}"))

    def call(self, method: str, request: Message) -> Any:
        """One call; raises the service's error."""
        data = request.SerializeToString()
        pieces = [data[at : at + PIECE_BYTES_MAX] for at in range(0, len(data), PIECE_BYTES_MAX)]
        answer = self.in_pieces(method, pieces) if len(pieces) > 1 else self.send_bytes(method, data)
        return METHODS[method].response.FromString(answer)

    def send_bytes(self, method: str, data: bytes, seconds: float = CALL_SECONDS) -> bytes:
        """One call with these bytes; returns the bytes of the answer."""
        stub = self.channel.unary_unary(METHODS[method].path)
        try:
            answer: bytes = stub(data, metadata=self.metadata, timeout=seconds)
        except grpc.RpcError as error:
            raise told_by(error) from None
        return answer

    def in_pieces(self, method: str, pieces: Iterable[bytes]) -> bytes:
        """One call with a request in pieces."""
        stub = self.channel.stream_unary(METHODS[method].path)
        try:
            answer: bytes = stub(iter(pieces), metadata=self.metadata, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise told_by(error) from None
        return answer

    def close(self) -> None:
        self.channel.close()


class CallRefusal(Exception):
    """gRPC itself ended a call, by this status."""


def told_by(error: Any) -> Exception:
    """The service's error, or gRPC's status if it has none."""
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_METADATA:
            told: TussockError = decode_error(value)
            return told
    return CallRefusal(error.code().name, error.details())


class GuardedMeta:
    """One replica, with a token for each role."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        made = {role: create_token(f"the-{role}", role, RealSystem()) for role in ROLES}
        self.tokens = {role: secret for role, (secret, _) in made.items()}
        tokens = folder / "tokens"
        tokens.write_text("\n".join(line for _, line in made.values()) + "\n")
        self.store_url = (folder / "store").as_uri()
        self.process = MetaProcess(self.store_url, "--tokens.file", str(tokens), *arguments).wait_until_it_leads()
        self._callers: list[Caller] = []

    def connect(self, role: str, **options: Any) -> StateStore:
        """A client of that role."""
        return connect(self.process.url, token=self.tokens[role], **options)

    def caller(self, role: str | None) -> Caller:
        """A caller with the token of that role, or without any."""
        made = Caller(self.process.address, None if role is None else self.tokens[role])
        self._callers.append(made)
        return made

    def memory(self, what: str) -> int:
        """Bytes of the process by its status: `VmRSS`, those resident now, or `VmHWM`, the most that ever were."""
        status = Path(f"/proc/{self.process.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(what)) << 10

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for caller in self._callers:
            caller.close()
        self.process.__exit__(kind, error, trace)
