"""The options and arguments that several commands share, each defined once."""

from typing import Annotated, TypeAlias

import typer

from tussock.cli.values import parse_moment
from tussock.statestore import InvalidOption, StateStore
from tussock.statestore.base.system import RealSystem
from tussock.statestore.epochs import epoch_at_ms
from tussock.statestore.moments import AnyTable, check_begun

__all__ = [
    "TLS_VARIABLES",
    "AnyApplication",
    "At",
    "DryRun",
    "Epoch",
    "Json",
    "Key",
    "OrMeta",
    "Store",
    "TableName",
    "TlsCa",
    "TlsCert",
    "TlsKey",
    "TlsServerName",
    "Yes",
    "read_epoch",
]

Store: TypeAlias = Annotated[
    str,
    typer.Option(
        "--store",
        "-s",
        envvar="TUSSOCK_STORE",
        metavar="URL",
        help="Where the store is: file:///path, s3://bucket/prefix, gs://..., az://... "
        "Credentials of a bucket come from the environment.",
    ),
]
AnyApplication: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="[HOST:PORT]", help="An application that `tussock serve` runs.", show_default=False),
]
OrMeta: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--meta", "-m", envvar="TUSSOCK_META", metavar="HOST:PORT,...", help="Or replicas of the meta service."
    ),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Go on without asking.")]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")]
TLS_VARIABLES = {
    "--tls-ca": "TUSSOCK_TLS_CA",
    "--tls-cert": "TUSSOCK_TLS_CERT",
    "--tls-key": "TUSSOCK_TLS_KEY",
    "--tls-server-name": "TUSSOCK_TLS_SERVER_NAME",
}
"""The variable of each option of TLS. Commands with `--store` have the variables alone."""

TlsCa: TypeAlias = Annotated[
    str | None, typer.Option("--tls-ca", envvar="TUSSOCK_TLS_CA", help="CA of the service (PEM), or `system`.")
]
TlsCert: TypeAlias = Annotated[
    str | None, typer.Option("--tls-cert", envvar="TUSSOCK_TLS_CERT", help="Certificate to show to the service (PEM).")
]
TlsKey: TypeAlias = Annotated[
    str | None, typer.Option("--tls-key", envvar="TUSSOCK_TLS_KEY", help="Its private key (PEM).")
]
TlsServerName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tls-server-name",
        envvar="TUSSOCK_TLS_SERVER_NAME",
        help="Name that each replica's certificate must have, instead of the host of its address.",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
TableName: TypeAlias = Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table.")]
Key: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY...",
        help="A raw key as text or hex:00ff; of a typed table the values of its key columns, in their order. "
        "Write `--` in front of a key that begins with a dash.",
    ),
]
Epoch: TypeAlias = Annotated[
    int | None, typer.Option("--epoch", "-e", min=1, help="Read the state as of this epoch; the newest if absent.")
]
At: TypeAlias = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Read what was committed until then (ISO 8601, UTC without a zone)."),
]


def read_epoch(store: StateStore, table: AnyTable, epoch: int | None, at: str | None) -> int | None:
    """The epoch that `--epoch` or `--at` asks for; `None` for the newest.

    `typer.BadParameter` for a moment before the first commit or after the newest: a wrong year would look like no data.
    """
    if at is None and epoch is None:
        return None
    newest = store.committed_epoch
    asked = f"--epoch {epoch}" if at is None else f"--at {at}"
    if epoch is None:
        assert at is not None
        epoch = min(_epoch_at(at), newest)
    elif at is not None:
        raise typer.BadParameter("--epoch and --at say the same thing: give one of them")
    if epoch > newest:
        raise typer.BadParameter(f"{asked} is not committed: the newest committed epoch is {newest}")
    try:
        check_begun(store, table, epoch, asked)
    except InvalidOption as error:
        raise typer.BadParameter(str(error)) from None
    return epoch


def _epoch_at(at: str) -> int:
    ms = int(parse_moment(at).timestamp() * 1000)
    if ms < 0:
        raise typer.BadParameter(f"--at {at}: no store is older than 1970")
    if ms > RealSystem().now_ms():
        raise typer.BadParameter(f"--at {at} lies in the future: what it shows would still change; leave it out")
    return epoch_at_ms(ms)
