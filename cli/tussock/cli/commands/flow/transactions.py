"""`tussock push`, `subscribe`, `history` and `bad-rows`: what goes into a stream, what comes out, what could not."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tussock.cli.commands.application import Application, Timeout, json_rows
from tussock.cli.commands.flow.options import StreamName, client_of_flow
from tussock.cli.options import Json, TlsCa, TlsCert, TlsKey, TlsServerName
from tussock.cli.output import emit_json, emit_lines, grid, iso_ms, note, show
from tussock.cli.values import parse_json

if TYPE_CHECKING:
    from tussock.compute.changelog import ChangeRecord, StreamTransaction

__all__ = ["bad_rows", "history", "push", "subscribe"]

OP, OLD = "_op", "_old"


def push(
    address: Application,
    stream: StreamName,
    rows: Annotated[
        str, typer.Option("--rows", "-r", metavar="FILE", help="JSON lines, one a record, `_op` in it; - is stdin.")
    ] = "-",
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Push one transaction to a stream, and print its number once it is durable.

    A record is an UPSERT unless its `_op` says INSERT, UPDATE, DELETE or SAFEDELETE.
    Needs the role writer; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    given = json_rows(rows)
    with client_of_flow(address, tls_ca, tls_cert, tls_key, tls_server_name, timeout) as client:
        to = client.stream(stream)
        records = [_record(row, to.schema, at) for at, row in enumerate(given, 1)]
        emit_json(client.reply(to.push(records, timeout=timeout), timeout, f"the transaction for {stream!r}"))


def subscribe(
    address: Application,
    stream: StreamName,
    begin: Annotated[
        int | None, typer.Option("--from", "-f", min=0, help="The first transaction; what comes now if absent.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after that many transactions.")] = None,
    blocks: Annotated[bool, typer.Option("--blocks", help="Of an update the new values and the old ones.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.001, max=86_400, help="End if nothing comes for that long.")
    ] = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Print what a stream publishes, a line of JSON for each record, until Ctrl-C.

    `_seq` is the number of its transaction, `_op` what it does.
    Needs the role reader; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    from tussock.statestore import WaitTimeout

    with (
        client_of_flow(address, tls_ca, tls_cert, tls_key, tls_server_name) as client,
        client.stream(stream).subscribe(begin, blocks=blocks, timeout=timeout) as found,
    ):
        left = count
        while left is None or left > 0:
            try:
                one = next(found)
            except WaitTimeout as error:
                note(str(error))
                return
            emit_lines({"_seq": one.seq, **_line(record)} for record in one)
            left = None if left is None else left - 1


def history(
    address: Application,
    stream: StreamName,
    side: Annotated[
        Literal["taken", "published"], typer.Option("--side", help="What it has taken, or what it has published.")
    ] = "published",
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=1000, help="How many transactions.")] = 20,
    what_if: Annotated[
        int | None,
        typer.Option("--what-if", min=1, metavar="NUMBER", help="Instead: what that taken one would come to now."),
    ] = None,
    as_json: Json = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """List the newest transactions of a stream with their records; or try one of those that it has taken again.

    Needs the role reader, and admin to try one; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE
    names.
    """
    with client_of_flow(address, tls_ca, tls_cert, tls_key, tls_server_name) as client:
        if what_if is not None:
            _show_try(client.what_if(stream, what_if))
            return
        of = client.stream(stream)
        found = of.in_history(last) if side == "taken" else of.out_history(last)
    if as_json:
        emit_lines({"_seq": one.seq, "_time": iso_ms(one.time), **_line(record)} for one in found for record in one)
        return
    lines = [(str(one.seq), iso_ms(one.time), *_cells(record)) for one in found for record in one or _nothing(one)]
    show(grid("number", "pushed", "op", "row", "was", right=("number",), rows=lines))


def bad_rows(
    address: Application,
    stream: StreamName,
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=1000, help="How many.")] = 20,
    before: Annotated[
        int | None, typer.Option("--before", min=1, metavar="NUMBER", help="Only those with lower numbers.")
    ] = None,
    replay: Annotated[
        int | None,
        typer.Option("--replay", min=1, metavar="NUMBER", help="Instead: give that one to the stream again."),
    ] = None,
    what_if: Annotated[
        int | None, typer.Option("--what-if", min=1, metavar="NUMBER", help="Instead: what that one would come to now.")
    ] = None,
    as_json: Json = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """List the newest transactions that a stream could not compute or put: which record, and why.

    Needs the role reader, writer to replay one, admin to try one; a token comes in TUSSOCK_TOKEN or in the file that
    TUSSOCK_TOKEN_FILE names.
    """
    if replay is not None and what_if is not None:
        raise typer.BadParameter("--replay has an effect and --what-if has none: give one of them")
    with client_of_flow(address, tls_ca, tls_cert, tls_key, tls_server_name) as client:
        if what_if is not None:
            _show_try(client.what_if(bad=what_if))
            return
        if replay is not None:
            client.replay_bad(replay)
            note(f"transaction {replay} was given to its stream again")
            return
        found = client.stream(stream).bad_rows(last, before)
    if as_json:
        emit_lines({**one._asdict(), "location": str(one.location)} for one in found)
        return
    rows = [
        (str(one.number), one.source or "push", str(one.seq), str(one.location), _number(one.row), one.error)
        for one in found
    ]
    heads = ("number", "from", "transaction", "location", "row", "cause")
    show(grid(*heads, right=("number", "transaction", "row"), rows=rows))


def _record(row: dict[str, Any], schema: Any, at: int) -> "ChangeRecord":
    from tussock.compute.changelog import ChangeRecord, Op
    from tussock.compute.changelog.changes.record import op_of

    word = row.pop(OP, str(Op.UPSERT))
    op = op_of(word)
    if op is None or op is Op.UPDATE_BLOCK:
        expected = ", ".join(one for one in Op if one is not Op.UPDATE_BLOCK)
        raise typer.BadParameter(f"--rows: line {at} has the operation {word!r:.100}; expected one of {expected}")
    known = set(schema.names)
    values = {
        name: parse_json(name, schema.field(name).type, value) if name in known else value
        for name, value in row.items()
    }
    return ChangeRecord(op, values)


def _line(record: "ChangeRecord") -> dict[str, Any]:
    line = {OP: str(record.op), **record}
    return line if record.old is None else {**line, OLD: dict(record.old)}


def _cells(record: "ChangeRecord | None") -> tuple[str, str, str]:
    if record is None:
        return "", "", ""
    return str(record.op), _text(dict(record)), "" if record.old is None else _text(dict(record.old))


def _nothing(_: "StreamTransaction") -> list[None]:
    """One line of a transaction without records."""
    return [None]


def _text(row: dict[str, Any]) -> str:
    from tussock.cli.values import as_text

    return " ".join(f"{name}={as_text(value)}" for name, value in row.items())


def _number(row: int | None) -> str:
    return "" if row is None else str(row)


def _show_try(found: Any) -> None:
    """What a transaction would come to, as JSON."""
    emit_json(
        {
            "transaction": found.taken.seq,
            "computed": [_line(record) for record in found.computed],
            "would publish": [_line(record) for record in found.published],
            "has published": None if found.was is None else [_line(record) for record in found.was],
            "error": found.error,
            "row": found.row,
            "location": None if found.location is None else str(found.location),
        }
    )
