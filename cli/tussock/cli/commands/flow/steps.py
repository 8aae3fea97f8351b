"""`tussock step`, `break` and `breakpoints`: a flow pauses where somebody wants it to, and goes on bit by bit."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tussock.cli.commands.application import Application
from tussock.cli.commands.flow.options import StreamName, client_of_flow
from tussock.cli.options import Json, TlsCa, TlsCert, TlsKey, TlsServerName
from tussock.cli.output import emit_json, emit_lines, grid, note, show

if TYPE_CHECKING:
    from tussock.compute.changelog import Client, PausedAt
    from tussock.compute.changelog.remote.remote_breakpoint import RemoteBreakpoint

__all__ = ["break_on", "breakpoints", "step"]

What = Literal["row", "trans", "location", "stream", "downstream", "base"]


def step(
    address: Application,
    what: Annotated[
        What,
        typer.Argument(
            metavar="[WHAT]",
            help="By a row, to the end of COMPUTE of a trans(action), to the next location; or work queues off: of "
            "the stream, of all downstream, of it and all before it (base).",
        ),
    ] = "row",
    stream: Annotated[
        str | None, typer.Option("--stream", metavar="STREAM", help="Which one; where the flow stands if absent.")
    ] = None,
    every: Annotated[
        float | None,
        typer.Option("--every", metavar="SECONDS", help="Step by itself, with that time between; 0: no more."),
    ] = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Let a paused flow go on by a step, and print where it stands then as JSON, with what it works on.

    Needs the role admin; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    with client_of_flow(address, tls_ca, tls_cert, tls_key, tls_server_name) as client:
        if every is not None:
            if what == "stream" or what == "downstream" or what == "base" or stream is not None:
                raise typer.BadParameter("--every goes with row, trans and location, and without --stream")
            if every:
                client.auto_step(every, what)
                note(f"the flow makes a step each {every:g} s: tussock step --every 0, or tussock resume")
            else:
                client.stop_auto_step()
            return
        at = _go_on(client, what, stream)
        emit_json({**at._asdict(), "location": str(at.location), **_work(client, at.stream)})


def break_on(
    address: Application,
    stream: StreamName,
    condition: Annotated[
        str,
        typer.Argument(metavar="[CONDITION]", help="Such as \"v > 100 and op == 'INSERT'\"; each record if absent."),
    ] = "",
    output: Annotated[bool, typer.Option("--output", help="After a record is computed, in place of before.")] = False,
    every: Annotated[int, typer.Option("--every", min=1, max=1_000_000_000, help="At each n-th record.")] = 1,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Pause a flow whenever a stream comes to a record for which a condition holds; prints the breakpoint's number.

    Needs the role admin; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    with client_of_flow(address, tls_ca, tls_cert, tls_key, tls_server_name) as client:
        emit_json(client.stream(stream).break_on("output" if output else "input", condition or None, every).number)


def breakpoints(
    address: Application,
    enable: Annotated[int | None, typer.Option("--enable", min=1, metavar="NUMBER", help="Let it pause again.")] = None,
    disable: Annotated[int | None, typer.Option("--disable", min=1, metavar="NUMBER", help="Let it not pause.")] = None,
    remove: Annotated[int | None, typer.Option("--remove", min=1, metavar="NUMBER", help="Forget it.")] = None,
    as_json: Json = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """List the breakpoints of a flow, after one was changed if that is asked for.

    Needs the role reader, and admin for changes; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE
    names.
    """
    with client_of_flow(address, tls_ca, tls_cert, tls_key, tls_server_name) as client:
        for number, how in ((enable, "enable"), (disable, "disable"), (remove, "remove")):
            if number is not None:
                _change(client.breakpoints, number, how)
        found = client.breakpoints
    if as_json:
        emit_lines(_shown(one) for one in found)
        return
    rows = [
        (
            str(one.number),
            one.stream,
            one.side,
            one.condition or "each record",
            str(one.every),
            str(one.hits),
            "yes" if one.is_enabled else f"no {one.error}".strip(),
        )
        for one in found
    ]
    heads = ("number", "stream", "on", "condition", "every", "hits", "enabled")
    show(grid(*heads, right=("number", "every", "hits"), rows=rows))


def _go_on(client: "Client", what: What, stream: str | None) -> "PausedAt":
    if what == "stream" or what == "downstream" or what == "base":
        return client.quiesce(stream, what)
    return client.step(what, stream)


def _change(found: "list[RemoteBreakpoint]", number: int, how: str) -> None:
    for one in found:
        if one.number == number:
            getattr(one, how)()
            return
    raise typer.BadParameter(f"there is no breakpoint {number}")


def _shown(one: "RemoteBreakpoint") -> dict[str, Any]:
    return {
        "number": one.number,
        "stream": one.stream,
        "side": one.side,
        "condition": one.condition,
        "every": one.every,
        "hits": one.hits,
        "enabled": one.is_enabled,
        "error": one.error,
    }


def _work(client: "Client", stream: str) -> dict[str, Any]:
    """What the stream works on, as far as it shows."""
    if not stream:
        return {}
    one = client.stream(stream)
    row, out = one.in_row, one.out_row
    return {
        "in_row": None if row is None else {"_op": str(row.op), **row},
        "out_row": None if out is None else [{"_op": str(record.op), **record} for record in out],
    }
