"""What the page of a flow asks the node for, and lets it do.

| path | asks for |
|---|---|
| `GET /stream?name=S&records=N` | a stream as it stands, with the newest of its records |
| `GET /history?stream=S&side=taken&before=N&count=N` | transactions that it has taken, or `published` |
| `GET /bad-rows?stream=S` | its newest bad transactions |
| `POST /act` | a pause, a step, a breakpoint and the like: JSON, such as `{"act": "step", "what": "row"}` |

Each is a request of the protocol, with the same roles. A page of another site cannot post: the header `X-Tussock` makes
a browser ask the node first, which does not answer that question.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from tussock.compute.applications.errors import HistoryGone
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.server.application_node import ApplicationNode
from tussock.compute.service.server.http.callers import check_caller, json_answer
from tussock.meta.node.auth.authentication import Authenticator
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.errors import InvalidOption, TussockError

__all__ = ["add_flow_pages"]

ASKED_MAX = 32
"""Requests of pages at once; those beyond are refused."""
RECORDS_MAX, BAD_SHOWN, COUNT_MAX = 50, 20, 50
NUMBER_MAX = (1 << 63) - 1
_STEPS: dict[str, Any] = {"row": pb.Step.ROW, "trans": pb.Step.TRANSACTION, "location": pb.Step.LOCATION}
_QUIESCES: dict[str, Any] = {
    "stream": pb.Step.QUIESCE,
    "downstream": pb.Step.QUIESCE_DOWNSTREAM,
    "base": pb.Step.QUIESCE_BASE,
}
_CHANGES: dict[str, Any] = {
    "enable": pb.ChangeBreakpoint.ENABLE,
    "disable": pb.ChangeBreakpoint.DISABLE,
    "remove": pb.ChangeBreakpoint.REMOVE,
}


class _Act(msgspec.Struct, forbid_unknown_fields=True):
    """What the page posts."""

    act: str
    stream: str = ""
    what: str = "row"
    how: str = ""
    side: str = "input"
    condition: str = ""
    every: int = 1
    number: int = 0
    seq: int = 0
    bad: int = 0
    seconds: float = 0.0
    is_held: bool = False


def add_flow_pages(app: web.Application, node: ApplicationNode, authenticator: Authenticator) -> None:
    """Serve them, too."""
    pages = _FlowPages(node, authenticator)
    app.router.add_get("/stream", pages.stream)
    app.router.add_get("/history", pages.history)
    app.router.add_get("/bad-rows", pages.bad_rows)
    app.router.add_post("/act", pages.act)


class _FlowPages:
    def __init__(self, node: ApplicationNode, authenticator: Authenticator) -> None:
        self._node = node
        self._authenticator = authenticator
        self._asked = 0

    async def stream(self, request: web.Request) -> web.Response:
        check_caller(request, self._authenticator, "stream_look")
        asked = pb.StreamLook(
            stream=request.query.get("name", ""), text_records=_number(request, "records", 1, RECORDS_MAX, 20)
        )
        return await self._answer("stream_look", pb.Request(stream_look=asked))

    async def history(self, request: web.Request) -> web.Response:
        check_caller(request, self._authenticator, "history")
        is_taken = request.query.get("side", "published") == "taken"
        asked = pb.History(
            stream=request.query.get("stream", ""),
            side=pb.History.TAKEN if is_taken else pb.History.PUBLISHED,
            before=_number(request, "before", 0, NUMBER_MAX, 0),
            count=_number(request, "count", 1, COUNT_MAX, 10),
            text_records=_number(request, "records", 1, RECORDS_MAX, 20),
        )
        return await self._answer("history", pb.Request(history=asked))

    async def bad_rows(self, request: web.Request) -> web.Response:
        check_caller(request, self._authenticator, "bad_rows")
        asked = pb.BadRows(stream=request.query.get("stream", ""), last=BAD_SHOWN)
        return await self._answer("bad_rows", pb.Request(bad_rows=asked))

    async def act(self, request: web.Request) -> web.Response:
        if request.headers.get("X-Tussock") != "1" or request.content_type != "application/json":
            raise web.HTTPForbidden(text="expected the header X-Tussock: 1, and JSON\n")
        # Before the body is read.
        check_caller(request, self._authenticator, "status")
        try:
            asked = msgspec.json.decode(await request.read(), type=_Act)
        except UNREADABLE as error:
            raise web.HTTPBadRequest(text=f"expected what to do as JSON: {error}\n") from None
        try:
            kind, wanted = _request_of(asked)
        except InvalidOption as error:
            return _refused(error)
        check_caller(request, self._authenticator, kind)
        return await self._answer(kind, wanted)

    async def _answer(self, kind: str, request: pb.Request) -> web.Response:
        """What a request comes to; what is wrong with it is the caller's, with status 400."""
        if problem := self._node.obstacle():
            raise web.HTTPServiceUnavailable(text=f"the application {problem}\n")
        if self._asked >= ASKED_MAX:
            raise web.HTTPServiceUnavailable(text="too many pages ask at once\n")
        self._asked += 1
        try:
            return json_answer(await asyncio.wrap_future(self._node.begin(kind, request)))
        except (InvalidOption, HistoryGone) as error:
            return _refused(error)
        finally:
            self._asked -= 1


def _refused(error: TussockError) -> web.Response:
    return json_answer({"kind": type(error).__name__, "message": str(error)}, 400)


def _number(request: web.Request, name: str, least: int, most: int, default: int) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
        raise web.HTTPBadRequest(text=f"expected {name}={least} to {most}\n")
    return int(text)


def _request_of(asked: _Act) -> tuple[str, pb.Request]:
    """A request of the protocol, and its kind; `InvalidOption` for what is none."""
    make = _ACTS.get(asked.act)
    try:
        if make is None:
            raise InvalidOption(f"{asked.act!r:.100} is nothing to do; expected one of {sorted(_ACTS)}")
        request = make(asked)
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidOption(f"what is asked for does not fit: {error}") from None
    return str(request.WhichOneof("what")), request


def _try_of(asked: _Act) -> pb.Request:
    if asked.bad:
        return pb.Request(what_if=pb.WhatIf(bad=asked.bad, text_records=RECORDS_MAX))
    return pb.Request(what_if=pb.WhatIf(stream=asked.stream, seq=asked.seq, text_records=RECORDS_MAX))


def _breakpoint_of(asked: _Act) -> pb.Request:
    if asked.side not in ("input", "output"):
        raise InvalidOption(f"a breakpoint on {asked.side!r:.100}; expected 'input' or 'output'")
    wanted = pb.SetBreakpoint(
        stream=asked.stream, on_output=asked.side == "output", condition=asked.condition, every=asked.every
    )
    return pb.Request(set_breakpoint=wanted)


_ACTS: dict[str, Callable[[_Act], pb.Request]] = {
    "pause": lambda _: pb.Request(pause=pb.Pause()),
    "resume": lambda _: pb.Request(resume=pb.Resume()),
    "step": lambda one: pb.Request(step=pb.Step(what=_STEPS[one.what], stream=one.stream)),
    "quiesce": lambda one: pb.Request(step=pb.Step(what=_QUIESCES[one.how], stream=one.stream)),
    "auto_step": lambda one: pb.Request(auto_step=pb.AutoStep(seconds=one.seconds, what=_STEPS[one.what])),
    "hold": lambda one: pb.Request(hold=pb.Hold(stream=one.stream, is_held=one.is_held)),
    "break": _breakpoint_of,
    "change_break": lambda one: pb.Request(
        change_breakpoint=pb.ChangeBreakpoint(number=one.number, how=_CHANGES[one.how])
    ),
    "what_if": _try_of,
    "replay_bad": lambda one: pb.Request(replay_bad=pb.ReplayBad(number=one.number)),
}
