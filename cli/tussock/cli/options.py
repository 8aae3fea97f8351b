"""The options and arguments that several commands share, each defined once."""

from typing import Annotated, TypeAlias

import typer

from tussock.cli.values import parse_moment
from tussock.statestore.epochs import epoch_at_ms

__all__ = [
    "At",
    "Epoch",
    "Json",
    "Key",
    "Meta",
    "Store",
    "TableName",
    "TlsCa",
    "TlsCert",
    "TlsKey",
    "TlsServerName",
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
Meta: TypeAlias = Annotated[
    str,
    typer.Option("--meta", "-m", envvar="TUSSOCK_META", metavar="HOST:PORT,...", help="Replicas of the meta service."),
]
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
        help="A raw key as text or hex:00ff; of a typed table the values of its key columns, in their order.",
    ),
]
Epoch: TypeAlias = Annotated[
    int | None, typer.Option("--epoch", "-e", min=1, help="Read the state as of this epoch; the newest if absent.")
]
At: TypeAlias = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Read what was committed until then (ISO 8601, UTC without a zone)."),
]


def read_epoch(epoch: int | None, at: str | None) -> int | None:
    """The epoch that `--epoch` or `--at` asks for; `None` for the newest."""
    if at is None:
        return epoch
    if epoch is not None:
        raise typer.BadParameter("--epoch and --at say the same thing: give one of them")
    ms = int(parse_moment(at).timestamp() * 1000)
    if ms < 0:
        raise typer.BadParameter(f"--at {at}: no store is older than 1970")
    return epoch_at_ms(ms)
