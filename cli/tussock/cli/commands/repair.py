"""The command `tussock repair clock`."""

from typing import Annotated

import typer

from tussock.cli.options import Json, Store
from tussock.cli.output import bytes_text, emit_json, epoch_text, iso_ms, note, plural, show, spinner
from tussock.cli.places import PLATFORM, bucket_at
from tussock.statestore import repair_clock

__all__ = ["repair"]

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
