"""What a transaction drew from outside, so that it has the same again when it runs again.

Of each kind the draws of a run are counted. The first run that asks for the third random number draws it, and later
runs of the transaction get that one, in the lock phase, in a later epoch, and after a crash.
"""

from collections.abc import Callable
from typing import Any

from tussock.compute.applications.arguments import class_of, text_of
from tussock.compute.applications.deadline import Overdue
from tussock.compute.applications.draws import Draws
from tussock.compute.functions.errors import Interrupt, OutsideCallFailed, ReplayDiffers
from tussock.statestore.base.system import System

__all__ = ["STOPPED", "TransactionDraws", "overdue_name"]

KIND_MAX = 200
STOPPED = ("Overdue", "RecursionError", "MemoryError")
"""What ends a transaction by the machine that it runs on: it is recorded, and not tried again."""


def overdue_name(*, is_locked: bool) -> str:
    """Under which a transaction keeps by which of `STOPPED` it ended.

    One that was stopped in the lock phase ran through before, and others may have lost to what it wrote then; so at a
    replay it has to run once more.
    """
    return "overdue in the lock phase" if is_locked else "overdue"


class TransactionDraws(Draws):
    """The draws of one transaction, over all of its runs."""

    def __init__(self, system: System, before_call: Callable[[], None]) -> None:
        """`before_call` makes durable what led to a call outside."""
        super().__init__(system, before_call)
        self.kept: dict[str, Any] = {}
        """All that was drawn, by kind and number."""
        self.fresh: list[tuple[str, Any]] = []
        """What no record has yet."""
        self.is_replay = False
        """Whether all that is asked for has to be known."""
        self._counts: dict[str, int] = {}

    def begin(self) -> None:
        """A run begins."""
        self._counts.clear()

    @property
    def counts(self) -> dict[str, int]:
        """Of each kind, how many this run has asked for."""
        return self._counts

    def go_on(self, kept: dict[str, Any], fresh: list[tuple[str, Any]], counts: dict[str, int]) -> None:
        """Take over what the run has drawn in another process."""
        self.kept, self.fresh, self._counts = kept, fresh, counts

    def keep(self, name: str, value: Any) -> None:
        """Take a draw from a record."""
        self.kept[name] = value

    def add(self, name: str, value: Any) -> None:
        """Keep something for the record."""
        self.kept[name] = value
        self.fresh.append((name, value))

    def call_external(self, fn: Callable[[str], Any], key: str) -> Any:
        """As of `Draws`; that a call failed is recorded, too, and raised again: `OutsideCallFailed`."""
        failure = self.kept.get(f"failed call {key}")
        if failure is not None:
            raise OutsideCallFailed(*failure)
        return super().call_external(fn, key)

    def _answer(self, fn: Callable[[str], Any], key: str) -> Any:
        try:
            return super()._answer(fn, key)
        except (Interrupt, Overdue):
            raise
        except BaseException as error:
            # What the function makes of it has to be the same when only the record knows of it.
            failure = [text_of(error), class_of(error)[:KIND_MAX]]
            self.add(f"failed call {key}", failure)
            raise OutsideCallFailed(*failure) from error

    def _draw(self, what: str, ask: Callable[[], Any]) -> Any:
        count = self._counts.get(what, 0)
        self._counts[what] = count + 1
        # The answer to a key is the same, however often it is asked.
        name = what if what.startswith("call ") else f"{what} {count}"
        if name not in self.kept:
            if self.is_replay:
                raise ReplayDiffers(f"the replay asked for {name!r}, which the first run had not asked for")
            self.add(name, ask())
        return self.kept[name]
