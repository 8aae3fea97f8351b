"""Workers in the test's own thread, by a seeded scheduler: answers come in any order, and anything may be lost.

All that workers decide and all that their program does is the product's; processes and sockets are not.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from support.buckets.faulty_bucket import Call, Fate, FaultyBucket
from support.procedures.histories import QuickSystem
from support.store.stores import open_on
from tussock.compute.functions.errors import WorkerLost
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.site import SiteOptions
from tussock.compute.functions.workers.desk import WorkerDesk
from tussock.compute.functions.workers.messages import CachedEnd, FromWorker, Refused, Stepped, ToWorker
from tussock.statestore import ObjectStoreUnavailable
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.settings import StoreSettings

__all__ = ["Crews", "SimulatedCrew"]

LOSSES_MAX = 5
"""Of a life: a program gives up when more come in a row."""


class Crews:
    """What all crews of a history have in common."""

    def __init__(self, bucket: ObjectStore, chance: random.Random, loss: float, outage: float = 0.0) -> None:
        """`loss`: the chance that a message or a worker is lost, for each question.

        `outage`: the chance that the bucket does not answer a worker, for each of its requests.
        """
        # Drawn apart, as threads of the workers' stores ask, too.
        faults = random.Random(chance.random())
        self.outages = 0

        def script(_: Call) -> Fate:
            if faults.random() >= outage:
                return Fate.PASS
            self.outages += 1
            return Fate.LOSE_REQUEST

        self.bucket = FaultyBucket(bucket, script)
        self.chance = chance
        self.loss = loss
        self.losses = 0
        self.cached = Counter[str]()
        """What workers told of losers that they ran from what they had cached, by its end."""
        self.steps = 0

    def __call__(
        self, program: str, operators: Operators, options: SiteOptions, settings: StoreSettings, lobby: object
    ) -> "SimulatedCrew":
        """In place of what makes real ones."""
        assert program
        assert settings
        assert lobby is None
        return SimulatedCrew(self, operators, options)


class _NoLimit:
    """Nobody is late where time is simulated."""

    def run(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        """At once."""
        return fn(*arguments)

    def excuse(self, wait: Callable[[], Any]) -> Any:
        """At once."""
        return wait()


class SimulatedCrew:
    """The face of a `Crew`."""

    def __init__(self, common: Crews, operators: Operators, options: SiteOptions) -> None:
        self._common = common
        self._operators = operators
        self._options = options
        self._members: list[WorkerDesk | None] = []
        self._left = common.chance.randint(0, LOSSES_MAX)
        self._to = msgspec.msgpack.Decoder(ToWorker).decode
        self._from = msgspec.msgpack.Decoder(FromWorker).decode
        self._ended = msgspec.msgpack.Decoder(CachedEnd).decode

    def __len__(self) -> int:
        return len(self._members)

    @property
    def joined(self) -> int:
        """How many are there."""
        return sum(one is not None for one in self._members)

    def hire(self, count: int, seconds: float) -> list[WorkerDesk]:
        """New workers, each with its own view of the store."""
        assert seconds
        return [self._start() for _ in range(count)]

    def change(self, workers: int, hired: Sequence[WorkerDesk]) -> None:
        """From now on there are that many."""
        new = [one for one in hired if one not in self._members]
        self._members = [*self._members, *new][:workers]
        self._members += [None] * (workers - len(self._members))

    def dismiss(self, hired: Sequence[WorkerDesk]) -> None:
        """Nothing to end."""

    def replace_lost(self, _: float | None) -> None:
        """Others for those that are gone."""
        self._members = [one or self._start() for one in self._members]

    def ask(self, questions: Mapping[int, Any]) -> dict[int, Any]:
        """Answers, computed in any order; one may be lost with its worker, before or after it did what was asked."""
        chance = self._common.chance
        order = list(questions)
        chance.shuffle(order)
        answers, lost = {}, None
        for at in order:
            fate = chance.random() / self._common.loss if self._common.loss else 2.0
            desk = self._members[at]
            if (fate < 1 and self._left) or desk is None:
                self._left -= 1
                if fate < 0.5 and desk is not None:
                    self._ask_one(desk, questions[at])
                self._members[at] = None
                self._common.losses += 1
                lost = WorkerLost(f"worker {at} died in a simulation")
                continue
            answers[at] = self._ask_one(desk, questions[at])
        if lost is not None:
            raise lost
        arrived = list(answers)
        chance.shuffle(arrived)
        return {at: answers[at] for at in arrived}

    def _ask_one(self, desk: WorkerDesk, question: Any) -> Any:
        try:
            answer = desk.answer(self._to(msgspec.msgpack.encode(question)))
        except ObjectStoreUnavailable as error:
            answer = Refused(str(error), is_passing=True)
        if isinstance(answer, Stepped):
            self._common.steps += 1
            self._common.cached.update(self._ended(end).end for end in answer.cached)
        return self._from(msgspec.msgpack.encode(answer))

    def close(self) -> None:
        """All end."""
        self._members = []

    def _start(self) -> WorkerDesk:
        system = QuickSystem()
        store = open_on(self._common.bucket, system)
        return WorkerDesk(self._operators, store, self._options.cache_bytes, system, _NoLimit())
