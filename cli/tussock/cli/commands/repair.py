"""The commands `tussock repair clock` and `tussock repair writers`."""

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from tussock.cli.options import Json, Store
from tussock.cli.output import bytes_text, emit_json, epoch_text, iso_ms, note, plural, show, spinner
from tussock.cli.places import PLATFORM, ask_service, bucket_at
from tussock.meta.meta_store import MetaStore
from tussock.statestore import repair_clock
from tussock.statestore.base.identity import access_from
from tussock.statestore.base.system import RealSystem

__all__ = ["repair"]

NAMES_MAX = 1000
repair = typer.Typer(name="repair", no_args_is_help=True)


@repair.callback()
def _repair() -> None:
    """Mend what a store cannot get out of by itself."""


@repair.command()
def clock(
    store: Store,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    max_clock_ahead: Annotated[
        float,
        typer.Option(min=0, help="Seconds ahead of the bucket's clock up to which epochs and times are left alone."),
    ] = 3600.0,
    as_json: Json = False,
) -> None:
    """Give epochs and times that are far ahead of the bucket's clock present ones; no row is lost.

    Stop the store's writers, and its meta service, first. Numbers of epochs that you noted mean nothing afterwards.
    With --json one document: {"dry_run", "needed", "bucket_at", "epochs", "old", "new", "rewritten",
    "rewritten_bytes", "times"}, where old and new are a pair (first, last) or null.
    """
    if not store.startswith(PLATFORM):
        with bucket_at(store):
            pass
    with spinner("looking at epochs and times"):
        done = repair_clock(store, dry_run=dry_run, max_clock_ahead=max_clock_ahead)
    if as_json:
        emit_json(
            {
                "dry_run": dry_run,
                "needed": done.is_needed,
                "bucket_at": iso_ms(done.bucket_ms),
                "epochs": done.epochs,
                "old": list(done.old) if done.epochs else None,
                "new": list(done.new) if done.epochs else None,
                "rewritten": done.rewritten,
                "rewritten_bytes": done.rewritten_bytes,
                "times": done.times,
            }
        )
        return
    if not done.is_needed:
        show(f"Nothing is ahead of the bucket's clock, {iso_ms(done.bucket_ms)}.")
        return
    would = "Would give" if dry_run else "Gave"
    if done.epochs:
        show(
            f"{would} {plural(done.epochs, 'epoch')} new numbers: {epoch_text(done.old[0])} to "
            f"{epoch_text(done.old[1])} become {epoch_text(done.new[0])} to {epoch_text(done.new[1])}."
        )
        verb = "would be" if dry_run else "were"
        show(f"{plural(done.rewritten, 'SST')}, {bytes_text(done.rewritten_bytes)}, {verb} written anew.")
    if done.times:
        show(f"{would} times that are ahead the bucket's time, {iso_ms(done.bucket_ms)}.")
    if not dry_run:
        note("numbers of epochs that were noted before, in checkpoints for one, mean nothing any more")


@repair.command()
def writers(
    store: Store,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The names to forget, up to 1,000.")],
    as_json: Json = False,
) -> None:
    """Forget names of writers, of which a store keeps 10,000.

    Stop what uses a name first. A process that has opened it is fenced for ever. What is known of its batches goes: one
    that is repeated later is stored once more. At a meta service this needs the role admin: a token comes in
    TUSSOCK_TOKEN or in the file of TUSSOCK_TOKEN_FILE. With --json one document: {"forgotten": [NAME]}.
    """
    if len(names) > NAMES_MAX:
        raise typer.BadParameter(f"{len(names)} names; up to {NAMES_MAX} are forgotten at a time")
    if store.startswith(PLATFORM):
        forgotten = _ask_to_forget(store.removeprefix(PLATFORM), names)
    else:
        with bucket_at(store) as bucket:
            forgotten = MetaStore(bucket, RealSystem()).forget_writers(names)
    if as_json:
        emit_json({"forgotten": forgotten})
        return
    show(f"Forgot {plural(len(forgotten), 'writer')}.")
    for name in sorted(set(names) - set(forgotten)):
        note(f"the store has no writer {name!r}")


def _ask_to_forget(addresses: str, names: Sequence[str]) -> list[str]:
    # Of the extra `platform`, so imported when it is needed.
    from tussock.meta.rpc import meta_pb2 as pb

    answer = ask_service(addresses, access_from(os.environ), "ForgetWriters", pb.ForgetWritersRequest(writers=names))
    return list(answer.forgotten)
