"""`tussock meta`: run a replica of the meta service, look at its settings, make tokens for it.

The service needs the extra `meta`, so what it is made of is imported when it is asked for.
"""

import os
import sys
from typing import Annotated, NoReturn

import typer

from tussock.cli.output import emit_json
from tussock.cli.values import safe
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import InvalidOption, TussockError

__all__ = ["meta", "refuse"]

meta = typer.Typer(
    name="meta", help="Run a meta service: one place that many processes share a store through.", no_args_is_help=True
)

Config = Annotated[
    str | None,
    typer.Option("--config", "-c", envvar="TUSSOCK_META_CONFIG", metavar="FILE", help="A TOML file with the settings."),
]
# Typer shows the usage in its help; the options of the service are taken as they come and checked by the service.
_ANY_OPTION = {"allow_extra_args": True, "ignore_unknown_options": True}


@meta.command(context_settings=_ANY_OPTION)
def serve(context: typer.Context, config: Config = None) -> None:
    """Run one replica until SIGTERM.

    Every setting can be given as --group.name VALUE, as TUSSOCK_META_GROUP__NAME, or in the file; the first of these
    that says something holds. `tussock meta settings` lists them.
    """
    # Before gRPC is loaded: its own lines are no JSON, and tell every broken handshake.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from tussock.meta.node.settings.sources import parse_flags
    from tussock.meta.server.serve import serve as serve_replica
    from tussock.meta.server.settings.form import load_settings

    try:
        settings = load_settings(parse_flags(context.args), os.environ, config)
    except InvalidOption as error:
        refuse(error)
    serve_replica(settings)


@meta.command(context_settings=_ANY_OPTION)
def settings(context: typer.Context, config: Config = None) -> None:
    """Print as JSON what every setting is, after flags, environment and file; secrets are left out."""
    from tussock.meta.node.settings.sources import parse_flags, shown
    from tussock.meta.server.settings.form import load_settings

    try:
        found = load_settings(parse_flags(context.args), os.environ, config)
    except InvalidOption as error:
        refuse(error)
    emit_json(shown(found))


@meta.command()
def token(
    name: Annotated[str, typer.Argument(help="Whose it is; in logs, and the owner of sessions.")],
    role: Annotated[str, typer.Argument(help="reader, writer, compactor or admin; several joined by commas.")],
) -> None:
    """Make a bearer token.

    The line for the tokens file goes to stdout, the token itself to stderr, and nowhere else:
    tussock meta token spark writer >> tokens.
    """
    from tussock.meta.node.auth.tokens import create_token

    try:
        secret, line = create_token(name, role, RealSystem())
    except TussockError as error:
        raise typer.BadParameter(str(error)) from None
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    sys.stderr.write(f"token, shown this once: {secret}\n")


def refuse(error: InvalidOption) -> NoReturn:
    """Say which settings do not work, a line each, which the usual report of an error would run together."""
    sys.stderr.write("error: " + safe(str(error), keep="\n") + "\n")
    raise typer.Exit(2) from None
