"""The workers of a program, by their numbers: asked, replaced when they do not answer, and more or less of them.

How one begins, is spoken to and ends is its staff's; nothing here depends on where they run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tussock.compute.functions.errors import WorkerLost
from tussock.compute.functions.workers.messages import (
    AllDone,
    BeginAt,
    CutPart,
    EpochStep,
    Hung,
    NextCut,
    Refused,
    StateReads,
    StateRows,
    StateWrites,
    Stepped,
)
from tussock.compute.functions.workers.staff.members import ANSWER_SECONDS, Staff, Worker, heard

__all__ = ["Crew", "WorkerHangs"]

_ANSWERS: dict[type, type] = {
    BeginAt: AllDone,
    EpochStep: Stepped,
    StateReads: StateRows,
    StateWrites: AllDone,
    NextCut: CutPart,
}
"""Beside these any question may be refused."""


class WorkerHangs(Exception):
    """A function in a worker cannot be stopped."""


class Crew:
    """The workers of one program; for its thread, except where something else is said."""

    def __init__(self, staff: Staff) -> None:
        self._staff = staff
        self._members: list[Worker | None] = []

    def __len__(self) -> int:
        return len(self._members)

    @property
    def processes(self) -> list[int]:
        """Their process ids, 0 for one that is elsewhere or is being replaced; in any thread."""
        return [0 if one is None else one.process for one in self._members]

    @property
    def joined(self) -> int:
        """How many are there, with those that wait; in any thread."""
        return sum(one is not None and one.is_there for one in [*self._members]) + self._staff.waiting

    def hire(self, count: int, seconds: float) -> list[Any]:
        """That many more, which belong to the crew once they are given to `change`; in any thread. As `Staff.hire`."""
        return self._staff.hire(count, seconds)

    def change(self, workers: int, hired: Sequence[Worker]) -> None:
        """From now on there are that many: those who were hired are the last ones, and the last ones go."""
        for one in self._members[workers:]:
            if one is not None:
                self._staff.release(one)
        new = [one for one in hired if one not in self._members]
        self._members = [*self._members, *new][:workers]
        self._members += [None] * (workers - len(self._members))

    def dismiss(self, hired: Sequence[Worker]) -> None:
        """Give those back that did not come to belong to the crew."""
        for one in hired:
            if one not in self._members:
                self._staff.release(one)

    def replace_lost(self, seconds: float | None) -> None:
        """Let others take the places of those that are gone. As `Staff.hire`."""
        for at, one in enumerate(self._members):
            if one is not None and not one.is_there:
                self._members[at] = None
                self._staff.end(one)
        gone = [at for at, one in enumerate(self._members) if one is None]
        for at, one in zip(gone, self._staff.hire(len(gone), seconds), strict=True):
            self._members[at] = one

    def ask(self, questions: Mapping[int, Any]) -> dict[int, Any]:
        """What workers answer, each to its question; `Refused` where the store did not answer one.

        So it is, too, where the store has lost a state that is asked for.
        Raises `WorkerLost`; then those that are lost are ended.
        """
        lost: WorkerLost | None = None
        asked, answers = [], {}
        for at, question in questions.items():
            try:
                self._member(at).link.send(question, ANSWER_SECONDS)
                asked.append(at)
            except WorkerLost as error:
                lost = self.lose(at, error)
        for at in asked:
            try:
                answers[at] = self._answer(at, _ANSWERS[type(questions[at])])
            except WorkerLost as error:
                lost = self.lose(at, error)
        if lost is not None:
            raise lost
        return answers

    def lose(self, at: int, error: Exception) -> WorkerLost:
        """End a worker, which is not to answer later what nobody waits for any more; returns what to raise."""
        one, self._members[at] = self._members[at], None
        if one is None:
            return WorkerLost(str(error))
        self._staff.end(one)
        found = WorkerLost(f"worker {at} of {len(self._members)}, {one.name}: {error}")
        found.__cause__ = error
        return found

    def close(self) -> None:
        """End all; those that are being hired are for the caller to dismiss."""
        members, self._members = self._members, []
        self._staff.close()
        for one in members:
            if one is not None:
                self._staff.end(one)

    def _member(self, at: int) -> Worker:
        found = self._members[at]
        if found is None:
            raise WorkerLost("it is not there")
        return found

    def _answer(self, at: int, kind: type) -> Any:
        answer = heard(self._member(at).link, ANSWER_SECONDS)
        if isinstance(answer, Hung):
            raise WorkerHangs
        if isinstance(answer, Refused):
            is_lost_state = bool(answer.kind) and kind is StateRows
            if not answer.is_passing and not is_lost_state:
                raise WorkerLost(answer.why)
        elif type(answer) is not kind:
            raise WorkerLost(f"it answered {type(answer).__name__} where {kind.__name__} was expected")
        return answer
