"""The node without a network: roles, how much may be on its way, replies, status."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future
from importlib import metadata
from typing import Any, NamedTuple, Protocol

from tussock.compute.applications.arguments import clean_text
from tussock.compute.applications.durability.troubles import waits
from tussock.compute.applications.errors import ApplicationStopped, Full, ServiceUnavailable, TransactionAborted
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.application_errors import code_of, message_of
from tussock.compute.service.rpc.kinds import KINDS
from tussock.compute.service.rpc.values import set_result
from tussock.compute.service.server.admission import Outstanding, ReplyShare, RequestPlace
from tussock.compute.service.server.layer import ServedLayer
from tussock.compute.service.server.metrics import ApplicationMetrics
from tussock.compute.service.server.settings import RequestLimits
from tussock.meta.node.auth.caller import Caller
from tussock.meta.node.auth.expiry import CertificateWatch
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import AccessDenied, InvalidOption, TussockError, WaitTimeout

__all__ = ["OF_NODE", "ApplicationNode", "Asked"]

log = get_logger("tussock.application")

FAILURES_SHOWN = 20
ENVELOPE_BYTES = 1024
"""Of a message beside its rows, or its reply."""
OF_NODE = frozenset({"status", "pause", "resume", "drain"})
"""Kinds of requests that each layer answers in the same way."""
_LOOKS = frozenset({"bad_rows", "history", "query", "stream_look", "stream_row", "stream_rows", "trace", "window_rows"})
"""Those that wait for what runs, and change nothing."""


class Asked(NamedTuple):
    """A request on its way."""

    number: int
    kind: str
    place: RequestPlace
    began: float
    future: "Future[Any]"


class OpenConversation(Protocol):
    """What the node tells a conversation."""

    def expect(self) -> None:
        """Replies turned out larger than was known."""

    def end_stalled(self) -> None:
        """Others lack the room that this one's replies take: end, if the client does not read them."""


class ApplicationNode:
    """Used by the event loop only, where nothing else is said."""

    def __init__(
        self,
        layer: ServedLayer,
        limits: RequestLimits,
        system: System,
        metrics: ApplicationMetrics,
        certificates: Sequence[str] = (),
    ) -> None:
        """The application is not started yet. `certificates`: files of which the status tells when they end."""
        self._certificates = CertificateWatch(certificates, system)
        self.layer = layer
        self.limits = limits
        self.system = system
        self.metrics = metrics
        self.outstanding = Outstanding(limits)
        self.open: set[OpenConversation] = set()
        """The conversations."""
        self.is_started = False
        self.is_draining = False
        self.on_drain: Callable[[], None] = lambda: None
        """What a caller's `Drain` does."""
        self.failures: deque[dict[str, Any]] = deque(maxlen=FAILURES_SHOWN)
        """The newest requests that ended with an error."""
        self._started_ms = system.now_ms()

    def enter(
        self, request: pb.Request, size: int, caller: Caller, who: Hashable, share: ReplyShare
    ) -> tuple[str, RequestPlace, float]:
        """Count a request in, which the caller may make and for which there is room; returns its kind and the time.

        Raises `InvalidOption`, `AccessDenied`, `Full`, or what the application has ended with.
        """
        kind = request.WhichOneof("what")
        if kind is None:
            raise InvalidOption("a request asks for nothing that this release knows; upgrade the service")
        if not caller.roles & KINDS[kind]:
            needed = " or ".join(str(role.name).lower() for role in KINDS[kind])
            raise AccessDenied(f"{caller.identity!r} may not {kind}; that needs the role {needed}", caller.identity)
        if self.layer.failure is not None:
            raise self.layer.failure
        if not self.is_started or self.is_draining:
            raise ServiceUnavailable(f"application {self.layer.name!r} {self.obstacle()}; this request did not begin")
        try:
            place = self.outstanding.enter(who, share, _asked_for(kind, request), size)
        except Full:
            if self.outstanding.is_crowded:
                for one in list(self.open):
                    one.end_stalled()
            raise
        return kind, place, self.system.monotonic()

    def begin(self, kind: str, request: pb.Request, place: RequestPlace | None = None) -> "Future[Any]":
        """Ask the application, or the node; in any thread. Raises a `TussockError`.

        `place`: of the request, where it came in a conversation.
        """
        if kind not in OF_NODE:
            return self.layer.begin(kind, request)
        done: Future[Any] = Future()
        if kind == "pause":
            self.layer.pause()
        elif kind == "resume":
            self.layer.resume()
        elif kind == "drain":
            self.on_drain()
        done.set_result(self.status(place) if kind == "status" else None)
        return done

    def leave(self, kind: str, place: RequestPlace, began: float, code: str) -> None:
        """Count a request out that was counted in and has no reply."""
        self.outstanding.leave(place)
        self.metrics.end(kind, code, self.system.monotonic() - began)

    def reply(self, asked: Asked) -> tuple[pb.Reply, bool]:
        """The reply to a request that has come to its end; its place is left when that is out.

        And whether replies of that kind are larger than was known.
        """
        reply = pb.Reply(number=asked.number)
        code = "OK"
        try:
            set_result(reply, asked.future.result(), self.limits.message_bytes - ENVELOPE_BYTES)
        except CancelledError:
            is_look = asked.kind in _LOOKS
            end = "had no answer in time" if is_look else "did not begin within its deadline, and was not run"
            error: TussockError = WaitTimeout(f"the {asked.kind} {end}{self._why()}")
            code = self._set_error(reply, asked.kind, error)
        except TussockError as error:
            code = self._set_error(reply, asked.kind, error)
        except Exception as error:
            log.error("request failed", kind=asked.kind, exc_info=error)
            code = self._set_error(reply, asked.kind, ApplicationStopped(f"{type(error).__name__}: {error}"))
        self.metrics.end(asked.kind, code, self.system.monotonic() - asked.began)
        nbytes = len(reply.plain) + len(reply.arrow)
        return reply, self.outstanding.answered(asked.place, nbytes, is_known=code == "OK")

    def obstacle(self) -> str:
        """Why no request is taken; empty if they are. In any thread."""
        if self.layer.failure is not None:
            return f"has ended: {self.layer.failure}"
        if self.is_draining:
            return "is shutting down"
        if self.is_started:
            return ""
        workers = self.layer.workers()
        if workers and workers["workers_joined"] < workers["workers"]:
            return f"is starting: {workers['workers_joined']} of {workers['workers']} workers have joined"
        return "is starting"

    def status(self, asked_by: RequestPlace | None = None) -> dict[str, Any]:
        """How node and application are, as JSON can say it. In any thread.

        The question and its conversation do not count: an idle node has none.
        """
        own = 0 if asked_by is None else 1
        layer = self.layer
        if self.is_started:
            found = layer.status()
        else:
            known = {"application": layer.name, "layer": layer.layer, **layer.workers()}
            found = {**known, "state": "starting", "failure": "", "trouble": [], "waiting": 0}
        if self.is_draining and found["state"] in ("running", "paused"):
            found["state"] = "draining"
        ending = [
            {"what": "certificate", "since_ms": one.since_ms, "error": one.text} for one in self._certificates.ending()
        ]
        return {
            **found,
            "trouble": [*found["trouble"], *ending],
            "ready": not self.obstacle(),
            "paused": found["state"] == "paused",
            "version": metadata.version("tussock"),
            "store": layer.store_url,
            "now_ms": self.system.now_ms(),
            "started_ms": self._started_ms,
            "outstanding": self.outstanding.requests - own,
            "outstanding_bytes": self.outstanding.nbytes - (0 if asked_by is None else asked_by.nbytes),
            "conversations": len(self.open) - own,
            "failures": list(self.failures.copy()),
        }

    def _why(self) -> str:
        """What the application waits for, behind a text; empty if nothing is known."""
        found = self.layer.status()
        if found["state"] == "paused":
            return ": the application is paused"
        told = "; ".join(text for one in found["trouble"] if (text := waits(one)))
        return told and f": {told}"

    def note_failure(self, kind: str, error: TussockError) -> None:
        """Show an error on the page."""
        self.failures.append(
            {
                "ms": self.system.now_ms(),
                "kind": kind,
                "error": type(error).__name__,
                "text": clean_text(str(error)[:500]),
                **_raised(error),
            }
        )

    def _set_error(self, reply: pb.Reply, kind: str, error: TussockError) -> str:
        reply.error.CopyFrom(message_of(error))
        self.note_failure(kind, error)
        return code_of(error)


def _raised(error: TussockError) -> dict[str, str]:
    """Of what a function raised, the class and the place: a bug is told from what the function refuses."""
    if not isinstance(error, TransactionAborted):
        return {"raised": "", "at": ""}
    return {"raised": error.kind[:200], "at": error.at}


def _asked_for(kind: str, request: pb.Request) -> Hashable:
    """What the sizes of replies are kept in mind by."""
    if kind == "send":
        return kind, request.send.operator, request.send.function
    if kind == "send_many":
        return kind, request.send_many.operator, request.send_many.function
    if kind == "call":
        return kind, request.call.name
    return (kind, request.submit.procedure) if kind == "submit" else kind
