"""`tussock serve` runs an application; `submit`, `call`, `query`, `call-graph`, `trace` and `drain` ask one that runs.

They need the extra `service`, or `platform` to ask only, so what they are made of is imported when it is asked for.
"""

import json
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tussock.cli.commands.meta import refuse
from tussock.cli.options import Json, TlsCa, TlsCert, TlsKey, TlsServerName
from tussock.cli.output import emit_json, emit_lines, grid, note, show
from tussock.cli.values import argument_value
from tussock.statestore.errors import InvalidOption

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tussock.compute.applications.errors import TransactionAborted
    from tussock.compute.procedures import Client

__all__ = [
    "ANY_OPTION",
    "Application",
    "call",
    "call_graph",
    "client_of",
    "drain",
    "json_rows",
    "query",
    "serve",
    "submit",
    "trace",
    "work",
]

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


def work(
    app: Annotated[str, typer.Argument(metavar="MODULE:RUNTIME", help="The program, as `tussock serve` has it.")],
    program: Annotated[
        str, typer.Option("--program", "-p", metavar="HOST:PORT", help="Where the program takes workers.")
    ],
    store: Annotated[
        str, typer.Option("--store", "-s", envvar="TUSSOCK_STORE", metavar="URL", help="The program's store.")
    ] = "",
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="The token for the program, if not the store's.")
    ] = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Be a worker of a program that `tussock serve --workers-listen HOST:PORT` runs, until SIGTERM.

    Imports the module and opens the store by itself; joins again whenever the program was gone.
    Needs the role admin; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from tussock.compute.functions.workers.staff.remote_worker import work as work_for
    from tussock.compute.service.server.entry import BadApplication
    from tussock.statestore.base.identity import access_from
    from tussock.statestore.base.service_logs import start_logging

    environ = dict(os.environ)
    if token_file is not None:
        environ = {**environ, "TUSSOCK_TOKEN": "", "TUSSOCK_TOKEN_FILE": token_file}
    access = access_from(environ, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, tls_server_name=tls_server_name)
    start_logging("info", "json", sys.stderr)
    try:
        work_for(app, store, program, access)
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

    access = client_access(tls_ca, tls_cert, tls_key, tls_server_name)
    return Client(address, **access, deadline=DEADLINE_SECONDS if timeout is None else timeout)


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
    batch = json_rows(rows)
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
        typer.Argument(
            metavar="ARGUMENT...", help="JSON, hex:00ff or base64:AP8=, or else text; of functions after KEY FUNCTION."
        ),
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
    from tussock.compute.applications.errors import TransactionAborted

    given = arguments or []
    with client_of(address, tls_ca, tls_cert, tls_key, tls_server_name, timeout) as client:
        status = client.status()
        if status["layer"] == "functions":
            access = client_access(tls_ca, tls_cert, tls_key, tls_server_name)
            try:
                _print(_send(address, access, status, name, given, timeout))
            except TransactionAborted as error:
                raise TransactionAborted(f"{error} ({_raised(error)})", *error.args[1:]) from None
        else:
            _print(client.call(name, *map(argument_value, given), timeout=timeout))


def query(
    address: Application,
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="The kind of entity.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="Text, a number, or hex:00ff, as the operator's keys are.")],
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Show the newest state of an entity of functions as JSON; ends with 1 if there is none.

    Needs the role reader; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    from tussock.compute.functions.remote.client import FunctionClient

    access = client_access(tls_ca, tls_cert, tls_key, tls_server_name)
    with FunctionClient(address, **access) as client:
        status = client.status()
        if status["layer"] != "functions":
            raise typer.BadParameter(f"{status['application']} is no program of functions, and has no entities")
        state = client.query(operator, _key(key, status, operator))
    if state is None:
        note(f"{operator} has no entity {key}")
        raise typer.Exit(1)
    emit_json(state)


def call_graph(
    address: Application,
    request_id: Annotated[str | None, typer.Argument(metavar="REQUEST_ID", help="The id of a request.")] = None,
    tid: Annotated[int | None, typer.Option("--tid", min=0, help="Instead: the number of a transaction.")] = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Show what one of the newest transactions of functions called, as JSON; ends with 1 for another one.

    Needs the role reader; a token comes in TUSSOCK_TOKEN or in the file that TUSSOCK_TOKEN_FILE names.
    """
    from tussock.compute.functions.remote.client import FunctionClient

    if (request_id is None) == (tid is None):
        raise typer.BadParameter("give the id of a request, or --tid with the number of a transaction")
    access = client_access(tls_ca, tls_cert, tls_key, tls_server_name)
    with FunctionClient(address, **access) as client:
        found = client.call_graph(request_id, tid=tid)
    if found is None:
        note("it is not among the newest transactions")
        raise typer.Exit(1)
    emit_json(found)


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


def client_access(
    tls_ca: str | None, tls_cert: str | None, tls_key: str | None, tls_server_name: str | None
) -> dict[str, Any]:
    """The files and the name as clients take them."""
    return {"tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key, "tls_server_name": tls_server_name}


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


def json_rows(file: str) -> list[dict[str, Any]]:
    """JSON objects, one a line of a file, or of stdin for `-`; `typer.BadParameter` if it has others."""
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
        except (ValueError, RecursionError) as error:
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
    key = _key(given[0], status, operator)
    with FunctionClient(address, **access) as client:
        asked = client.send(operator, key, given[1], *map(argument_value, given[2:]), timeout=timeout)
        return client.reply(asked, timeout, f"function {operator:.100}.{given[1]:.100}")


def _key(text: str, status: dict[str, Any], operator: str) -> str | int | bytes:
    """A key of the type that the operator's keys have."""
    kind = {one["name"]: one["key"] for one in status["operators"]}.get(operator, "string")
    try:
        if kind == "int64":
            return int(text)
        if kind == "binary":
            return bytes.fromhex(text.removeprefix("hex:")) if text.startswith("hex:") else text.encode()
    except ValueError:
        raise typer.BadParameter(f"{text!r:.100} is no key; expected one of type {kind}, bytes as hex:00ff") from None
    return text


def _raised(error: "TransactionAborted") -> str:
    """Class and place of what a function raised; a node of an earlier release tells no place."""
    return f"{error.kind} at {error.at}" if error.at else error.kind


def _print(value: Any) -> None:
    if hasattr(value, "to_pylist"):
        emit_lines(value.to_pylist())
    else:
        emit_json(value)
