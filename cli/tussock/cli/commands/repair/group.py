"""The group `tussock repair`, with its commands `clock`, `application` and `stream`."""

from typing import Annotated

import typer

from tussock.cli.commands.repair.ssts import repair_ssts
from tussock.cli.commands.repair.writers import writers
from tussock.cli.options import DryRun, Json, Store
from tussock.cli.output import bytes_text, emit_json, epoch_text, iso_ms, note, plural, show, spinner
from tussock.cli.places import PLATFORM, bucket_at, store_at
from tussock.compute.applications.durability.given_up import give_up_application
from tussock.statestore import repair_clock

__all__ = ["repair"]

repair = typer.Typer(name="repair", no_args_is_help=True)


repair.command(name="sst")(repair_ssts)
repair.command()(writers)


@repair.callback()
def _repair() -> None:
    """Mend what a store cannot get out of by itself."""


@repair.command()
def clock(
    store: Store,
    dry_run: DryRun = False,
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
def application(
    store: Store,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a program, an application or a flow.")],
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Go on from the newest commit; keep what the input log has after it.")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="The same, and the application is no more; its tables are nobody's.")
    ] = False,
    place: Annotated[
        str | None, typer.Option("--input", metavar="URL", help="Of the input log, if not in the store's bucket.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let an application start again whose input log cannot be run again, or give its tables up.

    Stop the application first. The records of the log that no commit holds, to which callers have had replies, are kept
    in the table NAME.given_up. A forgotten name is not used again. With --json one document: {"application",
    "records", "table", "epoch", "forgotten"}, where table is null if there were no records.
    """
    if give_up == forget:
        raise typer.BadParameter("expected one of --give-up and --forget")
    with store_at(store) as opened:
        done = give_up_application(opened, name, place=place, forget=forget)
    table = done.table if done.records else None
    if as_json:
        emit_json(
            {
                "application": name,
                "records": done.records,
                "table": table,
                "epoch": done.epoch,
                "forgotten": forget,
            }
        )
        return
    kept = f"; table {table!r} has them" if table else ""
    show(f"Gave up {plural(done.records, 'record')} of the input log of {name!r}{kept}.")
    if forget:
        show(f"Application {name!r} is no more, and its tables are nobody's. Programs of functions take them over by")
        show("load(OPERATOR, []), under another name; a flow does not, and begins once they are dropped.")


@repair.command()
def stream(
    store: Store,
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="Its name.")],
    name: Annotated[str, typer.Argument(metavar="STREAM", help="One of the flow, or one that it had.")],
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="The next start makes it anew from the rows of its inputs.")
    ] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Drop its tables; it begins anew, and is empty.")] = False,
    place: Annotated[
        str | None, typer.Option("--input", metavar="URL", help="Of the input log, if not in the store's bucket.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let a stream of a flow be made anew, such as after its declaration was changed, or after bad transactions.

    Stop the flow first, in order. What the stream publishes then is the difference to what it had. With --json one
    document: {"flow", "stream", "rebuilt", "dropped"}, where dropped are the tables that are no more.
    """
    if rebuild == forget:
        raise typer.BadParameter("expected one of --rebuild and --forget")
    dropped: list[str] = []
    # Not for all commands, whose start would take half as long again.
    from tussock.compute.changelog.engine.anew.stream_repairs import forget_stream, rebuild_stream

    with store_at(store) as opened:
        if forget:
            dropped = forget_stream(opened, flow, name, place=place)
        else:
            rebuild_stream(opened, flow, name, place=place)
    if as_json:
        emit_json({"flow": flow, "stream": name, "rebuilt": rebuild, "dropped": dropped})
        return
    if forget:
        show(f"Forgot stream {name!r} of flow {flow!r}, with {plural(len(dropped), 'table')}.")
    else:
        show(f"The next start of flow {flow!r} makes stream {name!r} anew.")
