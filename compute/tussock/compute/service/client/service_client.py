"""`ServiceClient`: what clients of all layers share: address and access, looks, and the end."""

import os
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from tussock.compute.applications.arguments import check_seconds
from tussock.compute.service.client.channel import ApplicationChannel
from tussock.compute.service.client.connection import ApplicationConnection
from tussock.compute.service.client.replies import begin_ms
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.meta.client.addresses import addresses_in
from tussock.statestore.base.identity import access_from
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import InvalidOption, TussockError, WaitTimeout

__all__ = ["ServiceClient"]

OUTSTANDING_MAX = 9000
_CHANGING = frozenset({"pause", "resume"})
LOOK_TIMES, LOOK_SECONDS = 2, 5.0
"""Of a look, such as a status: then the service hangs, or its machine does."""


class ServiceClient:
    """An application behind `tussock serve`. Safe to share between threads; use it in a `with` block, or close it."""

    _REFUSAL: type[TussockError] = InvalidOption
    """What those get who would wait in a callback of a reply, as from the local application."""

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        tls_server_name: str | None = None,
        deadline: float = 30.0,
        outstanding: int = 256,
    ) -> None:
        """`address` is `host:port`; connects when it is first used.

        Token and certificates are given as to `connect`, or by the same variables of the environment.
        For `deadline` seconds a request that has not begun is tried again; with `outstanding` requests under way the
        next one waits. Raises `InvalidOption`.
        """
        try:
            if not isinstance(address, str) or len(addresses_in(address)) > 1:
                raise InvalidOption("there is one address")
        except InvalidOption:
            shown = "***" if isinstance(address, str) and "@" in address else address
            raise InvalidOption(f"the application's address is {shown!r:.200}; expected HOST:PORT") from None
        check_seconds(deadline, f"client of {address}: deadline", none=False)
        if type(outstanding) is not int or not 1 <= outstanding <= OUTSTANDING_MAX:
            raise InvalidOption(f"outstanding is {outstanding!r:.100}; expected 1 to {OUTSTANDING_MAX:,}")
        access = access_from(
            os.environ,
            token=token,
            tls_ca=tls_ca,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_server_name=tls_server_name,
        )
        self._system = RealSystem()
        self._deadline = deadline
        channel = ApplicationChannel(address.removeprefix("tussock://"), access, self._system)
        self._connection = ApplicationConnection(
            channel, self._system, deadline=deadline, outstanding=outstanding, refusal=self._REFUSAL
        )

    def stats(self) -> dict[str, Any]:
        """Counts of the service's run, as those of the local application."""
        found: dict[str, Any] = self._look(pb.Request(stats=pb.Stats()))
        return found

    def status(self) -> dict[str, Any]:
        """How application and service are; `docs/service.md` lists it."""
        found: dict[str, Any] = self._look(pb.Request(status=pb.Status()))
        return found

    def pause(self) -> None:
        """Let requests wait until `resume`; needs the role admin."""
        self._look(pb.Request(pause=pb.Pause()))

    def resume(self) -> None:
        """Run what waits, and what comes; needs the role admin."""
        self._look(pb.Request(resume=pb.Resume()))

    def drain(self) -> None:
        """Let the service end as by SIGTERM; returns once it has begun to. Needs the role admin.

        It ends the node, and waits for no feed; `App.drain` waits for the feeds, and ends nothing.
        """
        self.ask_now(pb.Request(drain=pb.Drain()), is_repeatable=False)

    def ask(self, request: pb.Request, *, is_repeatable: bool) -> "Future[Any]":
        """Send a request of the protocol as it is; `is_repeatable`: again, if the connection breaks."""
        return self._connection.ask(request, is_repeatable=is_repeatable)

    def ask_now(self, request: pb.Request, *, is_repeatable: bool) -> Any:
        """The same, waiting for the reply; in a callback of a reply nothing is sent, and it raises."""
        self._connection.check_wait()
        return self.ask(request, is_repeatable=is_repeatable).result()

    def future(self) -> "Future[Any]":
        """One that follows on a reply, and is waited for as that is."""
        return self._connection.future()

    def check_wait(self) -> None:
        """Raise in a callback of a reply, where a wait for another one would never end."""
        self._connection.check_wait()

    def reply(self, asked: "Future[Any]", timeout: float | None, what: str, *, again: str = "") -> Any:
        """Wait for what was asked for; the errors at the end of the time say what is known of `what`."""
        return self._connection.reply(asked, timeout, what, again=again)

    def close(self, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds for the replies under way, and end; `None`: the client's `deadline`.

        A request that has none by then ends with `OutcomeUnknown` if it was sent, else with `ServiceUnavailable`.
        Again: nothing.
        """
        if timeout is not None:
            check_seconds(timeout, "close of a client: timeout", none=False)
        self._connection.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception nobody waits for what else is under way.
        self.close(None if kind is None else 0)

    def _look(self, request: pb.Request) -> Any:
        """Within `LOOK_TIMES` times the client's deadline and `LOOK_SECONDS`; `WaitTimeout` says what hinders it."""
        self._connection.check_wait()
        kind = request.WhichOneof("what")
        seconds = LOOK_TIMES * self._deadline + LOOK_SECONDS
        if kind in _CHANGING:
            return self.reply(self.ask(request, is_repeatable=True), seconds, f"the {kind}", again="; ask again")
        # The service says what it waits for.
        request.deadline_ms = begin_ms(seconds)
        try:
            return self.reply(self.ask(request, is_repeatable=True), seconds, f"the {kind}")
        except WaitTimeout:
            raise
        except TimeoutError as error:
            raise WaitTimeout(
                f"no answer to the {kind} within {seconds:g} s; it changes nothing, and may be asked again"
            ) from error
