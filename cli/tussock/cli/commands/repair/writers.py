"""`tussock repair writers`: names of writers that will never come back leave the store."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from tussock.cli.options import DryRun, Json, Store, Yes
from tussock.cli.output import agree, bytes_text, emit_json, epoch_text, grid, note, number, plural, show
from tussock.cli.places import PLATFORM, ask_service, bucket_at, version_at
from tussock.meta.log.format import encode_base
from tussock.meta.meta_store import MetaStore
from tussock.meta.version.bounds import idle_writers
from tussock.meta.version.deltas.retention import ForgetWriters
from tussock.meta.version.version import Version
from tussock.statestore.base.identity import access_from
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.backend import VersionView
from tussock.statestore.errors import InvalidOption

__all__ = ["writers"]

NAMES_MAX = 1_000
"""In one entry of the log, and one call of a service."""
NAMES_BYTES_MAX = 256 << 10
"""Of these names; a call of a service may have four times as much."""
SHOWN_MAX = 20
IDLE_SECONDS = 86_400.0

Forget = Callable[[Sequence[str], int], list[str]]
"""Forgets names that are idle for that many milliseconds, and returns those that it forgot."""


def writers(
    store: Store,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="The names to forget.", show_default=False)
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="All idle names that begin so; '' is all idle names.")
    ] = None,
    idle: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="A name that has committed since then stays.")
    ] = IDLE_SECONDS,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Forget names of writers that will never come back, of which a store keeps 10,000.

    Every base version has them all. A process that has opened a name is fenced for ever. What is known of its batches
    goes: one that is repeated later is stored once more. A name that was brought or has committed within the last day
    stays: given by itself it ends the command, and nothing is forgotten. At a meta service this needs the role admin: a
    token comes in TUSSOCK_TOKEN or in the file of TUSSOCK_TOKEN_FILE. With --json one document: {"dry_run",
    "forgotten": [NAME], "active": [NAME], "unknown": [NAME], "base_bytes", "base_bytes_after"}.
    """
    if bool(names) == (prefix is not None):
        raise typer.BadParameter("give names, or --prefix for all idle names that begin so")
    if as_json and not (yes or dry_run):
        raise typer.BadParameter("--json asks nobody: it goes with --yes or with --dry-run")
    with _store_at(store) as (version, forget):
        every = sorted(version.ledger.keys() | version.generations.keys())
        wanted = names or [name for name in every if name.startswith(prefix or "")]
        known = [name for name in dict.fromkeys(wanted) if version.knows_writer(name)]
        unknown = sorted(set(wanted).difference(known))
        before_ms = RealSystem().now_ms() - int(idle * 1000)
        chosen = idle_writers(version, known, before_ms) if idle else known
        active = sorted(set(known).difference(chosen))
        if names and active:
            raise InvalidOption(
                f"writer {active[0]!r} (of {len(active)} such) was brought or has committed within the last {idle:g} "
                "seconds: nothing was forgotten; stop it and wait, or give a smaller --idle"
            )
        sizes = len(encode_base(version)), len(encode_base(ForgetWriters(writers=tuple(chosen)).apply(version)))
        if not as_json:
            _tell(version, chosen, active, unknown, sizes)
            if chosen and not dry_run:
                agree(f"Forget {plural(len(chosen), 'writer')}?", yes=yes)
        forgotten = list(chosen) if dry_run else []
        for part in () if dry_run else _parts(chosen):
            forgotten += forget(part, int(idle * 1000))
    active += sorted(set(chosen).difference(forgotten))
    if as_json:
        document = {"dry_run": dry_run, "forgotten": forgotten, "active": active, "unknown": unknown}
        emit_json({**document, "base_bytes": sizes[0], "base_bytes_after": sizes[1]})
    elif not dry_run:
        show(f"Forgot {plural(len(forgotten), 'writer')}.")
        if late := len(chosen) - len(forgotten):
            note(f"{plural(late, 'writer')} of these committed meanwhile, or left: not forgotten by this")


def _parts(names: Sequence[str]) -> Iterator[list[str]]:
    """The names in their order, as many at a time as go into one entry."""
    part: list[str] = []
    size = 0
    for name in names:
        length = len(name.encode())
        if part and (len(part) == NAMES_MAX or size + length > NAMES_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(name)
        size += length
    if part:
        yield part


def _tell(
    version: Version, chosen: Sequence[str], active: Sequence[str], unknown: Sequence[str], sizes: tuple[int, int]
) -> None:
    """Which names would go, and what it means; the latter on stderr, as it is no result."""
    for name in unknown:
        note(f"the store has no writer {name!r}")
    if active:
        note(f"{plural(len(active), 'writer')} committed lately, and stay, such as {active[0]!r}")
    if not chosen:
        return
    rows = []
    for name in chosen[:SHOWN_MAX]:
        batches = version.ledger.get(name)
        last = (number(batches[-1][0]), epoch_text(batches[-1][1])) if batches else ("none", "")
        rows.append((name, *last))
    show(grid("writer", "last batch", "its epoch", right=["last batch"], rows=rows))
    if len(chosen) > SHOWN_MAX:
        note(f"and {plural(len(chosen) - SHOWN_MAX, 'more writer')}; --json names all")
    note(f"a base version has {bytes_text(sizes[0])}, and without these names {bytes_text(sizes[1])}")
    note("A batch that one of them repeats later is stored once more; a process that has opened the name is fenced.")


@contextmanager
def _store_at(url: str) -> Iterator[tuple[Version, Forget]]:
    """The newest version of a store, and what forgets names of its writers."""
    if url.startswith(PLATFORM):
        with version_at(url) as version:
            yield _whole(version), lambda names, idle_ms: _ask(url.removeprefix(PLATFORM), names, idle_ms)
        return
    with bucket_at(url) as bucket:
        meta = MetaStore(bucket, RealSystem())
        yield meta.version(), meta.forget_writers


def _whole(version: VersionView) -> Version:
    # Clients of a service follow its log, and hold what it gives.
    assert isinstance(version, Version)
    return version


def _ask(addresses: str, names: Sequence[str], idle_ms: int) -> list[str]:
    # Of the extra `platform`, so imported when it is needed.
    from tussock.meta.rpc import meta_pb2 as pb

    request = pb.ForgetWritersRequest(writers=names, idle_ms=idle_ms)
    answer: Any = ask_service(addresses, access_from(os.environ), "ForgetWriters", request)
    return list(answer.forgotten)
