"""`FlowClient`: the calls of a `Flow` that another process serves."""

import threading
from typing import Any

from tussock.compute.applications.arguments import check_seconds, check_text
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.debugging.flow_looks import How
from tussock.compute.changelog.debugging.what_if import WhatIf
from tussock.compute.changelog.loop.debugger import Step
from tussock.compute.changelog.loop.location import Location, PausedAt
from tussock.compute.changelog.remote.remote_breakpoint import RemoteBreakpoint
from tussock.compute.changelog.remote.remote_stream import RemoteStream
from tussock.compute.changelog.remote.wire import from_bytes, read_shape
from tussock.compute.service.client.service_client import ServiceClient
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore.errors import InvalidOption, WaitTimeout

__all__ = ["FlowClient"]

_STEPS: dict[str, Any] = {"row": pb.Step.ROW, "trans": pb.Step.TRANSACTION, "location": pb.Step.LOCATION}
_QUIESCES: dict[str, Any] = {
    "stream": pb.Step.QUIESCE,
    "downstream": pb.Step.QUIESCE_DOWNSTREAM,
    "base": pb.Step.QUIESCE_BASE,
}
LOOK_SECONDS = 0.05
"""Between two looks while it waits for a pause."""
NUMBER_MAX = (1 << 63) - 1


class FlowClient(ServiceClient):
    """A flow behind `tussock serve`. Safe to share between threads; use it in a `with` block, or close it."""

    def __init__(self, address: str, **options: Any) -> None:
        """Options are those of every client: token, certificates, `deadline`, `outstanding`. Raises `InvalidOption`."""
        super().__init__(address, **options)
        self._lock = threading.Lock()
        self._shapes: dict[str, StreamShape] | None = None

    @property
    def streams(self) -> list[str]:
        """The names of the streams."""
        return list(self.shapes())

    def stream(self, name: str) -> RemoteStream:
        """A stream of the flow; `InvalidOption` if it has none of that name."""
        check_text(name, "the name of a stream")
        if name not in self.shapes():
            raise InvalidOption(f"the flow has no stream {name!r:.100}; it has {self.streams!r:.500}")
        return RemoteStream(self, name)

    def pause(self) -> None:
        """Let all streams stand still where they are; returns once they do. Needs the role admin."""
        super().pause()
        # In a pause a look comes from the flow's thread, which then is done with what it was at.
        look = pb.StreamLook(stream=self.streams[0], text_records=1)
        self._look(pb.Request(stream_look=look))

    def step(self, what: Step = "row", stream: RemoteStream | str | None = None) -> PausedAt:
        """As `Flow.step`; needs the role admin, and is not repeated if the connection breaks."""
        if what not in _STEPS:
            raise InvalidOption(f"a step by {what!r:.100}; expected 'row', 'trans' or 'location'")
        return self._stepped(pb.Step(what=_STEPS[what], stream=_name_of(stream)))

    def quiesce(self, stream: RemoteStream | str | None = None, how: How = "stream") -> PausedAt:
        """As `Flow.quiesce`; needs the role admin."""
        if how not in _QUIESCES:
            raise InvalidOption(f"quiesce(how={how!r:.100}); expected 'stream', 'downstream' or 'base'")
        return self._stepped(pb.Step(what=_QUIESCES[how], stream=_name_of(stream)))

    def auto_step(self, seconds: float, what: Step = "row") -> None:
        """As `Flow.auto_step`; needs the role admin."""
        check_seconds(seconds, "auto_step: seconds", none=False)
        if what not in _STEPS or not seconds:
            raise InvalidOption(f"auto_step({seconds!r}, {what!r:.100}); expected more than 0 s, and a step")
        self.ask_now(pb.Request(auto_step=pb.AutoStep(seconds=seconds, what=_STEPS[what])), is_repeatable=True)

    def stop_auto_step(self) -> None:
        """Make no more steps by itself; needs the role admin."""
        self.ask_now(pb.Request(auto_step=pb.AutoStep()), is_repeatable=True)

    @property
    def paused_at(self) -> PausedAt | None:
        """Where the flow stands; `None` if it is not paused."""
        at = self.status()["paused_at"]
        return None if at is None else _paused_at(at)

    def wait_paused(self, timeout: float | None = None) -> PausedAt:
        """Return once a breakpoint, or a user, has paused the flow. Raises `WaitTimeout`."""
        check_seconds(timeout, "wait_paused: timeout", none=True)
        until = None if timeout is None else self._system.monotonic() + timeout
        while (found := self.paused_at) is None:
            if until is not None and self._system.monotonic() > until:
                raise WaitTimeout(f"the flow was not paused within {timeout:g} s")
            self._system.sleep(LOOK_SECONDS)
        return found

    @property
    def breakpoints(self) -> list[RemoteBreakpoint]:
        """Those of all streams, as they are now."""
        return [RemoteBreakpoint(self, one) for one in self.status()["breakpoints"]]

    def replay_bad(self, number: int) -> None:
        """As `Flow.replay_bad`; needs the role writer, and is not repeated if the connection breaks."""
        self.ask_now(pb.Request(replay_bad=pb.ReplayBad(number=_number(number))), is_repeatable=False)

    def what_if(
        self, stream: RemoteStream | str | None = None, seq: int | None = None, *, bad: int | None = None
    ) -> WhatIf:
        """As `Flow.what_if`, by the stream's own function as the node has it; needs the role admin."""
        if (seq is None) == (bad is None) or (stream is None) != (seq is None):
            raise InvalidOption("what_if takes a stream and the number of a transaction, or bad= and that of a bad one")
        asked = pb.WhatIf(seq=_number(seq), stream=_name_of(stream)) if bad is None else pb.WhatIf(bad=_number(bad))
        found = self.ask_now(pb.Request(what_if=asked), is_repeatable=True)
        taken, computed, published = (
            from_bytes(found[name], self.shapes()) for name in ("taken", "computed", "published")
        )
        was = None if found["was"] is None else from_bytes(found["was"], self.shapes()).records
        location = None if found["location"] is None else Location(found["location"])
        return WhatIf(taken, computed.records, published.records, was, found["row"], location, found["error"])

    def shapes(self) -> dict[str, StreamShape]:
        """Columns and keys of all streams, as the service says them once."""
        with self._lock:
            if self._shapes is None:
                hello = self._connection.hello()
                if hello.layer != "changelog":
                    raise InvalidOption(f"{hello.application!r} is an application of {hello.layer}, and no flow")
                self._shapes = {name: read_shape(name, data) for name, data in sorted(hello.schemas.items())}
            return self._shapes

    def wait_a_moment(self, seconds: float) -> None:
        """Before something is tried again."""
        self._system.sleep(seconds)

    def unique_name(self) -> str:
        """A name that nobody else has."""
        return str(self._system.random_bytes(16).hex())

    def monotonic(self) -> float:
        """Seconds of a clock that only goes on."""
        return self._system.monotonic()

    def _stepped(self, step: pb.Step) -> PausedAt:
        return _paused_at(self.ask_now(pb.Request(step=step), is_repeatable=False))


def _paused_at(found: dict[str, Any]) -> PausedAt:
    return PausedAt(found["stream"], Location(found["location"]), found["row"], found["breakpoint"])


def _name_of(stream: RemoteStream | str | None) -> str:
    if stream is None:
        return ""
    return check_text(stream.name if isinstance(stream, RemoteStream) else stream, "the name of a stream")


def _number(value: object) -> int:
    if type(value) is not int or not 1 <= value <= NUMBER_MAX:
        raise InvalidOption(f"{value!r:.100} is no number of a transaction")
    return value
