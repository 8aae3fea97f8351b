"""`tussock serve` runs an application; `tussock submit`, `call`, `trace` and `drain` ask one that runs.

They need the extra `service`, or `platform` to ask only, so what they are made of is imported when it is asked for.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tussock.cli.commands.meta import refuse
from tussock.cli.options import Json, TlsCa, TlsCert, TlsKey, TlsServerName
from tussock.cli.output import emit_json, emit_lines, grid, iso_ms, note, number, plural, show
from tussock.statestore.errors import InvalidOption

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tussock.compute.procedures import Client

__all__ = ["ANY_OPTION", "Application", "application_parts", "call", "client_of", "drain", "serve", "submit", "trace"]

ANY_OPTION = {"allow_extra_args": True, "ignore_unknown_options": True}
ROWS_BYTES_MAX = 1 << 30
DEADLINE_SECONDS = 30.0
"""For which an application is looked for, where nothing else is said."""

Application = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where `tussock serve` listens.")]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=0.001, max=86_400, help="Seconds to wait for the reply.")
]


def serve(
    context: typer.Context,
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="An application, or a function of a store.")],
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", envvar="TUSSOCK_SERVE_CONFIG", metavar="FILE", help="A TOML file of settings."),
    ] = None,
) -> None:
    """Run an application until SIGTERM: `tussock serve shop.votes:make_app --store s3://bucket/prefix`.

    A function is given the store and returns the application. Every setting can be given as --group.name VALUE, as
    TUSSOCK_SERVE_GROUP__NAME, or in the file; the first of these that says something holds. docs/service.md lists them.
    """
    # Before gRPC is loaded: its own lines are no JSON, and tell every broken handshake.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from tussock.compute.service.server.entry import BadApplication
    from tussock.compute.service.server.serve import serve_application
    from tussock.compute.service.server.settings import SERVE_FORM
    from tussock.meta.node.settings.sources import load_form, parse_flags

    try:
        settings = load_form(SERVE_FORM, {**parse_flags(context.args), "app": app}, os.environ, config)
    except InvalidOption as error:
        refuse(error)
    try:
        serve_application(settings)
    except BadApplication as error:
        raise typer.BadParameter(str(error)) from None


def client_of(
    address: str,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_server_name: str | None,
    timeout: float | None = None,
) -> "AbstractContextManager[Client]":
    """A client of the application there, tried for `timeout` seconds; a token comes from the environment."""
    from tussock.compute.procedures.remote.client import Client

    return Client(
        address,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_server_name=tls_server_name,
        deadline=DEADLINE_SECONDS if timeout is None else timeout,
    )


def submit(
    address: Application,
    procedure: Annotated[str, typer.Argument(metavar="PROCEDURE", help="A border procedure.")],
    rows: Annotated[str, typer.Option("--rows", "-r", metavar="FILE", help="JSON lines, one a row; - is stdin.")] = "-",
    batch_id: Annotated[
        int | None, typer.Option("--batch-id", "-b", min=1, help="Makes it safe to repeat; the next one if absent.")
    ] = None,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Give a procedure one batch of rows, and print the reply as JSON once it is durable.

    Needs the role writer; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    batch = _rows(rows)
    again = "; with --batch-id it may be repeated" if batch_id is None else "; it may be repeated with that --batch-id"
    with client_of(address, tls_ca, tls_cert, tls_key, tls_server_name, timeout) as client:
        # Asked before the batch, on the same connection: so it says what was there before.
        look = None if batch_id is None else _look(client)
        ticket = client.submit(procedure, batch, batch_id, timeout=timeout)
        try:
            _print(client.reply(ticket, timeout, f"the batch for {procedure!r}", again=again))
        finally:
            if look is not None and batch_id is not None and batch_id <= _last_batch(look, procedure):
                _note_repetition(ticket, procedure, batch_id)


def call(
    address: Application,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A call procedure; of functions an operator.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENT...", help="Each as JSON, or else as text; of functions after KEY FUNCTION."),
    ] = None,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Run a call procedure, or a function: `tussock call HOST:PORT OPERATOR KEY FUNCTION ARGUMENT...`.

    Prints the reply as JSON.
    Needs the role writer; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    given = arguments or []
    with client_of(address, tls_ca, tls_cert, tls_key, tls_server_name, timeout) as client:
        status = client.status()
        if status["layer"] == "functions":
            access: dict[str, Any] = {
                "tls_ca": tls_ca,
                "tls_cert": tls_cert,
                "tls_key": tls_key,
                "tls_server_name": tls_server_name,
            }
            _print(_send(address, access, status, name, given, timeout))
        else:
            _print(client.call(name, *map(_value, given), timeout=timeout))


def trace(
    address: Application,
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=10_000, help="How many executions.")] = 20,
    as_json: Json = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """List the newest executions of an application: procedures with their batches, and calls.

    Needs the role reader; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    with client_of(address, tls_ca, tls_cert, tls_key, tls_server_name) as client:
        found = client.trace(last)
    if as_json:
        emit_lines({"procedure": name, "batch_id": batch} for name, batch in found)
    else:
        rows = [(name, "call" if batch is None else str(batch)) for name, batch in found]
        show(grid("procedure", "batch", right=("batch",), rows=rows))


def drain(
    address: Application,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Let an application end, as by SIGTERM: what it has taken is answered and committed first.

    Needs the role admin; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    with client_of(address, tls_ca, tls_cert, tls_key, tls_server_name) as client:
        client.drain()
    note("the application is ending")


def application_parts(status: dict[str, Any]) -> Iterator[Any]:
    """What `tussock status` shows of an application."""
    if status["failure"]:
        yield f"error: {status['failure']}"
    counts = (status.get(name, 0) for name in ("records", "log_writes", "commits"))
    records, writes, commits = counts
    facts = [
        ("application", status["application"]),
        ("state", status["state"]),
        ("store", status["store"]),
        ("release", status["version"]),
        ("requests", f"{number(status['waiting'])} wait, {number(status['outstanding'])} without a reply"),
        ("clients", plural(status["conversations"], "connection")),
        ("this run", f"{plural(records, 'record')}, {plural(writes, 'log write')}, {plural(commits, 'commit')}"),
    ]
    if status["layer"] == "functions":
        yield from _function_parts(status, facts)
    else:
        yield from _procedure_parts(status, facts)
    if failures := status["failures"]:
        failed = [(iso_ms(one["ms"]), one["kind"], one["error"], one["text"]) for one in failures]
        yield grid("failed", "request", "error", "", rows=failed)


def _procedure_parts(status: dict[str, Any], facts: list[tuple[str, str]]) -> Iterator[Any]:
    yield grid("status", "", rows=[*facts, ("calls", ", ".join(status.get("calls", ())) or "none")])
    if procedures := status.get("procedures"):
        rows = [
            (
                one["name"],
                number(one["last_batch"]) if one["border"] else "",
                ", ".join(one["consumes"]) or "clients or a feed",
                ", ".join(one["emits"]),
            )
            for one in procedures
        ]
        yield grid("procedure", "last batch", "consumes", "emits", right=("last batch",), rows=rows)
    if windows := status.get("windows"):
        shown = [
            (
                one["name"],
                one["stream"],
                f"{number(one['size'])} {one['of']}",
                *map(number, (one["visible"], one["staged"])),
            )
            for one in windows
        ]
        yield grid("window", "of", "size", "visible", "staged", right=("visible", "staged"), rows=shown)


def _function_parts(status: dict[str, Any], facts: list[tuple[str, str]]) -> Iterator[Any]:
    lock_free, locked, aborted, deferred = (
        number(status.get(name, 0)) for name in ("lock_free", "locked", "aborted", "deferred")
    )
    ended = f"{lock_free} without locks, {locked} with locks, {aborted} aborted; {deferred} wait for the next epoch"
    epochs = f"{number(status.get('epochs', 0))} of this run, {status.get('conflicts', '')}"
    yield grid("status", "", rows=[*facts, ("epochs", epochs), ("transactions", ended)])
    if operators := status.get("operators"):
        rows = [
            (one["name"], one["key"], number(one["partitions"]), ", ".join(one["columns"]), ", ".join(one["functions"]))
            for one in operators
        ]
        yield grid("operator", "keys", "partitions", "columns", "functions", right=("partitions",), rows=rows)
    if hot := status.get("hot"):
        lost = [(operator, _shown_key(key), number(count)) for operator, key, count in hot]
        yield grid("hot", "key", "lost", right=("lost",), rows=lost)
    if transactions := status.get("transactions"):
        newest = [
            (
                str(one["tid"]),
                one["phase"],
                f"{one['operator']}.{one['function']}",
                _shown_key(one["key"]),
                number(one["calls"]),
                one["error"],
            )
            for one in transactions
        ]
        yield grid("transaction", "phase", "function", "key", "calls", "error", right=("calls",), rows=newest)


def _shown_key(key: Any) -> str:
    """A key of an operator, bytes as `call` takes them."""
    return f"hex:{key.hex()}" if isinstance(key, bytes) else str(key)


def _look(client: "Client") -> "Future[Any]":
    from tussock.compute.service.rpc import application_pb2 as pb

    return client.ask(pb.Request(status=pb.Status()), is_repeatable=True)


def _last_batch(look: "Future[Any]", procedure: str) -> int:
    """The newest batch that the procedure had been given; 0 if that is not known."""
    if not look.done() or look.exception() is not None:
        return 0
    found = [one["last_batch"] for one in look.result().get("procedures", ()) if one["name"] == procedure]
    return int(found[0]) if found else 0


def _note_repetition(ticket: "Future[Any]", procedure: str, batch_id: int) -> None:
    """Say that these rows were not run, if that is what the reply means: nobody compares them with the first ones."""
    from tussock.compute.applications.errors import ProcedureError

    if ticket.done() and not ticket.cancelled() and isinstance(ticket.exception(), ProcedureError | None):
        note(f"batch {batch_id} of {procedure} was given before: this is its first reply, and these rows were not run")


def _rows(file: str) -> list[dict[str, Any]]:
    try:
        text = sys.stdin.read(ROWS_BYTES_MAX) if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--rows {file}: cannot be read: {error}") from None
    found = []
    for at, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise typer.BadParameter(f"--rows {file}: line {at} is no JSON: {error}") from None
        if not isinstance(row, dict):
            raise typer.BadParameter(f"--rows {file}: line {at} is no JSON object")
        found.append(row)
    return found


def _send(
    address: str,
    access: dict[str, Any],
    status: dict[str, Any],
    operator: str,
    given: list[str],
    timeout: float | None,
) -> Any:
    """Ask a node of functions for a transaction; `given` is key, function and arguments."""
    from tussock.compute.functions.remote.client import FunctionClient

    if len(given) < 2:
        raise typer.BadParameter(
            f"{status['application']} is a program of functions; expected HOST:PORT OPERATOR KEY FUNCTION ARGUMENT..."
        )
    types = {one["name"]: one["key"] for one in status["operators"]}
    key = _key(given[0], types.get(operator, "string"))
    client = FunctionClient(address, **access)
    value = client.send(operator, key, given[1], *map(_value, given[2:])).result(timeout)
    # Not after a timeout: that would wait for the very reply.
    client.close()
    return value


def _key(text: str, kind: str) -> str | int | bytes:
    """A key of an operator whose keys are of that type of Arrow."""
    try:
        if kind == "int64":
            return int(text)
        if kind == "binary":
            return bytes.fromhex(text.removeprefix("hex:")) if text.startswith("hex:") else text.encode()
    except ValueError:
        raise typer.BadParameter(f"{text!r:.100} is no key; expected one of type {kind}, bytes as hex:00ff") from None
    return text


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _print(value: Any) -> None:
    if hasattr(value, "to_pylist"):
        emit_lines(value.to_pylist())
    else:
        emit_json(value)
