"""Running a function in a transaction until it commits."""

from collections.abc import Callable
from typing import TypeVar

from tussock.statestore.base.arguments import check_ended, check_function
from tussock.statestore.base.system import System
from tussock.statestore.errors import Conflict, InvalidOption, SnapshotExpired
from tussock.statestore.shown import show_value
from tussock.statestore.transactions.transaction import Transaction

__all__ = ["transact"]

T = TypeVar("T")

PAUSE_SECONDS = 0.005
PAUSE_SECONDS_MAX = 1.0
"""Before the second attempt, and before any later one."""
ATTEMPTS_MAX = 1000


def transact(begin: Callable[[], Transaction], fn: Callable[[Transaction], T], attempts: int, system: System) -> T:
    """What `fn(tx)` returned in the attempt that committed; the last attempt's `Conflict`, or expiry, if none did.

    The pauses between attempts double, and their lengths are random, so that transactions that met do not meet again.
    Raises `InvalidOption` for an impossible number of attempts, and for what is no plain function.
    """
    if type(attempts) is not int or not 1 <= attempts <= ATTEMPTS_MAX:
        raise InvalidOption(f"attempts is {show_value(attempts)}; expected 1 to {ATTEMPTS_MAX}")
    check_function(fn, "the function of a transaction")
    pause = PAUSE_SECONDS
    for left in reversed(range(attempts)):
        try:
            with begin() as tx:
                returned = fn(tx)
                check_ended(returned, "the function of a transaction")
                return returned
        except SnapshotExpired:
            # A commit of others was faster than the snapshot: without retention it ends that at once, and is known now.
            # A pause would let more of them come.
            if not left:
                raise
        except Conflict:
            if not left:
                raise
            share = int.from_bytes(system.random_bytes(2), "big") / 65536
            system.sleep(pause * (0.5 + share))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
    raise AssertionError("unreachable: the last attempt returns or raises")
