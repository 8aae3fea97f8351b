"""What an epoch's transactions drew, as its record has it: arrays of number, name and value.

So is by which text one was aborted, since that may be another one when it runs again: a set of strings has another
order in each process, and an object another address.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tussock.compute.applications.errors import NotDeterministic
from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.program.draws import STOPPED, TransactionDraws, overdue_name

__all__ = ["fresh_draws", "keep_texts", "recorded_abort", "take_draws"]

TEXT = "text"
"""Under which a transaction keeps it."""


def fresh_draws(transactions: Sequence[FunctionTransaction]) -> list[Any]:
    """What no record has yet."""
    found = []
    for one in transactions:
        if one.draws is not None and one.draws.fresh:
            found += [[one.tid, name, value] for name, value in one.draws.fresh]
    return found


def take_draws(
    transactions: Sequence[FunctionTransaction],
    drawn: Sequence[Any],
    draws_of: Callable[[FunctionTransaction], TransactionDraws],
    *,
    is_replay: bool,
) -> None:
    """Give transactions what a record says that they had drawn; for their next record, if this is no replay of it."""
    if not drawn:
        return
    by_tid = {one.tid: one for one in transactions}
    for tid, name, value in drawn:
        one = by_tid.get(tid)
        if one is None:
            raise NotDeterministic(f"the input log has draws of transaction {tid}, which is not in its epoch")
        if is_replay:
            draws_of(one).keep(name, value)
        else:
            draws_of(one).add(name, value)


def recorded_abort(one: FunctionTransaction) -> str | None:
    """At a replay: by which text a transaction was aborted when it ran first; `None` where its record has none."""
    kept = {} if one.draws is None else one.draws.kept
    for name in (overdue_name(is_locked=False), overdue_name(is_locked=True)):
        if name in kept:
            return str(kept[name][0])
    return kept.get(TEXT)


def keep_texts(
    ended: Sequence[FunctionTransaction],
    draws_of: Callable[[FunctionTransaction], TransactionDraws],
    *,
    is_replay: bool,
) -> None:
    """Record the texts of aborted transactions; at a replay they get those of the record."""
    for one in ended:
        run = one.run
        # What stopped a transaction it keeps already, with its text.
        if run is None or run.aborted is None or run.aborted.kind in STOPPED:
            continue
        if not is_replay:
            draws_of(one).add(TEXT, str(run.aborted))
        elif one.draws is not None and (text := one.draws.kept.get(TEXT)) is not None:
            # A record of an earlier release lacks it.
            run.aborted = run.aborted.saying(text)
