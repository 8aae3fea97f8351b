"""One random history of one random application: requests, stops, deaths, successors; all from a seed.

Threads decide which records become durable together, so two runs of a seed are not the same in every request; what
is asked for is, and the rules hold for all of them.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from support.buckets.faulty_bucket import Call, Fate, FaultyBucket
from support.inside import input_logs_in
from support.procedures.interpreter import Interpreter, Outcome
from support.procedures.oracle import Oracle, Request, broken_rule
from support.procedures.plans import CALLS, TABLES, make_plan
from support.procedures.programs import Program, outcome_of, rows_of, tables_of
from support.store.stores import open_on
from tussock.compute import procedures as ps
from tussock.statestore import StateStore
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.errors import CorruptLog

__all__ = ["Dead", "Fuse", "QuickSystem", "run_history"]

LIVES = (2, 5)
REQUESTS_MAX = 14
TRACE_MAX = 10_000
RETRY_SECONDS = 0.5
"""The pauses of the product after a failed request are no shorter."""
SECONDS_MAX = 15
"""After that, a caller of a dead runner may wait for ever."""


class Dead(Exception):
    """The process of this bucket is dead. An `Exception`, so that its threads end as they would with any bug."""


class QuickSystem(RealSystem):
    """Pauses between attempts are short."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds if seconds < RETRY_SECONDS else 0.002)


class Fuse:
    """A script of `FaultyBucket`: from some call on all fail, and a few writes before that do."""

    def __init__(self, at: int, *, is_done: bool, hiccups: dict[int, Fate]) -> None:
        """`is_done`: the call with that number has its effect."""
        self.at = at
        self.is_done = is_done
        self.hiccups = hiccups
        self.is_blown = False

    def blow(self) -> None:
        """Die now."""
        self.is_blown = True

    def __call__(self, call: Call) -> Fate:
        if self.is_blown:
            raise Dead(f"at {call}")
        if call.number >= self.at:
            self.is_blown = True
            if self.is_done and call.operation in ("create", "put", "delete"):
                return Fate.LOSE_ANSWER
            raise Dead(f"at {call}")
        if call.operation in ("create", "put"):
            return self.hiccups.get(call.number, Fate.PASS)
        return Fate.PASS


class _Died(Exception):
    """The runner is dead, and the oracle knows."""


class History:
    """The application of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.plan = make_plan(self.chance)
        self.oracle = Oracle(self.plan)
        self.bucket = open_bucket("memory://")
        # Drawn apart, so that all else of a seed is as it is in the store's own bucket.
        self.place = "memory://the-input-log" if random.Random(f"{seed} place").random() < 0.4 else None
        """Where the input log is; `None`: in the store's bucket."""
        self.log = open_bucket("memory://")
        self.log_fuse: Fuse | None = None
        """By which the log's bucket dies, together with the store's, for a runner that starts now."""
        self.drawn: dict[int, int] = {}
        """Random numbers that were durable once."""
        self.lost: list[Request] = []
        """Batches that were not answered; the client may give them again."""
        self.deaths = 0

    def run(self) -> None:
        """All its lives; the last one ends well."""
        lives = self.chance.randint(*LIVES)
        with input_logs_in(lambda _: FaultyBucket(self.log, self.log_fuse)):
            for life in range(lives + 1):
                self._live(is_last=life == lives)
        assert (not list(self.log.list(""))) == (self.place is None)

    # --- A life ------------------------------------------------------------------------------------------------------

    def _live(self, *, is_last: bool) -> None:
        fuse = self._fuse(is_last=is_last)
        self.log_fuse = None if is_last else fuse
        store = open_on(FaultyBucket(self.bucket), QuickSystem()) if is_last else self._open(fuse)
        if store is None:
            self.deaths += 1
            return
        program = None
        try:
            program = self._start(store, fuse)
            self._look_at(program, fuse)
            for _ in range(self.chance.randint(1, 3)):
                self._ask(program, fuse)
            self._look_at(program, fuse)
            assert not broken_rule(self.plan, program.runs), broken_rule(self.plan, program.runs)
            if is_last or self.chance.random() < 0.4:
                self._stop(program, fuse)
            elif self.chance.random() < 0.3:
                self._replace(program)
                raise _Died
            else:
                raise _Died
        except _Died:
            self.deaths += 1
        finally:
            fuse.blow()
            if program is not None:
                with suppress(Exception):
                    program.app.stop()
            with suppress(Exception):
                store.close()

    def _fuse(self, *, is_last: bool) -> Fuse:
        chance = self.chance
        at = (
            10**9
            if is_last or chance.random() < 0.3
            else chance.choice((chance.randint(1, 25), chance.randint(15, 90)))
        )
        hiccups = {
            chance.randint(10, 80): chance.choice((Fate.LOSE_REQUEST, Fate.LOSE_ANSWER))
            for _ in range(chance.choice((0, 0, 1, 3)))
        }
        return Fuse(at, is_done=chance.random() < 0.5, hiccups=hiccups)

    def _open(self, fuse: Fuse) -> StateStore | None:
        try:
            return open_on(FaultyBucket(self.bucket, fuse), QuickSystem())
        except Exception:
            assert fuse.is_blown
            return None

    def _start(self, store: StateStore, fuse: Fuse) -> Program:
        """With other options each time: what is on disk does not depend on them."""
        options = {
            "recovery": self.chance.choice(("weak", "strong")),
            "group_commit": self.chance.choice((None, 0.0, 0.002, 0.02)),
            "checkpoint": self.chance.choice((0, 0.01, 3600)),
        }
        try:
            program = Program(self.plan, store, input=self.place, **options)
            program.app.start()
        except CorruptLog:
            raise
        except ps.NotDeterministic as error:
            # A procedure takes the death of its process, of which it knows nothing else, for an error of its code.
            if "Dead: " not in str(error):
                raise
            raise _Died from error
        except Exception as error:
            self._expect_death(fuse, error)
            raise _Died from error
        return program

    def _stop(self, program: Program, fuse: Fuse) -> None:
        try:
            program.app.stop()
        except Exception as error:
            self._expect_death(fuse, error)
            raise _Died from error
        # A process that ends well has committed all.
        with open_on(FaultyBucket(self.bucket), QuickSystem()) as other:
            self._compare({name: _rows(other, name) for name in (*TABLES, "seen", "drawn")})

    def _replace(self, program: Program) -> None:
        """Another runner takes over from the living one, which then can do nothing any more."""
        with open_on(FaultyBucket(self.bucket), QuickSystem()) as store:
            self.log_fuse = None
            successor = Program(self.plan, store, input=self.place, checkpoint=3600)
            with successor.app:
                request = Request(self.plan.borders[0], True, None, (1,))
                answer = self._replaced(lambda: outcome_of(_submit(program, request), SECONDS_MAX))
                assert answer is None, f"a runner that was replaced has answered a batch: {answer}"
                self._compare(tables_of(outcome_of(successor.app.call_async("dump"))))

    def _replaced(self, ask: Callable[[], Outcome]) -> Outcome | None:
        try:
            return ask()
        except (ps.ApplicationFenced, Dead):
            return None

    # --- Requests ----------------------------------------------------------------------------------------------------

    def _ask(self, program: Program, fuse: Fuse) -> None:
        """Several requests at once, and their answers."""
        requests, expected = [], self.oracle.newest.copy()
        for _ in range(self.chance.randint(1, REQUESTS_MAX)):
            request = self._request(expected)
            requests.append(request)
            request.do(expected)
        tickets: list[Future[Any]] = []
        for request in requests:
            try:
                tickets.append(_submit(program, request))
            except Exception as error:
                self._expect_death(fuse, error)
                break
        answers = [self._answer(ticket, fuse, program) for ticket in tickets]
        known = next((at for at, answer in enumerate(answers) if answer is None), len(answers))
        assert not any(answers[known:]), f"answers {answers} of {requests}: an earlier one was lost, a later one came"
        for request, answer in zip(requests, answers[:known], strict=False):
            assert answer is not None
            self.oracle.answered(request, answer)
        if known < len(requests):
            self._died(requests[known:])

    def _died(self, unanswered: Sequence[Request]) -> None:
        self.oracle.died(unanswered)
        self.lost += [one for one in unanswered if one.is_batch and one.batch_id is not None]
        raise _Died

    def _answer(self, ticket: "Future[Any]", fuse: Fuse, program: Program) -> Outcome | None:
        try:
            outcome = outcome_of(ticket, SECONDS_MAX)
        except Exception as error:
            self._expect_death(fuse, error)
            return None
        # A read of the dead process failed: its clients are as dead.
        return None if outcome[0] == "refused" and outcome[3].startswith("Dead") else outcome

    def _request(self, expected: Interpreter) -> Request:
        chance = self.chance
        if self.lost and chance.random() < 0.7:
            return self.lost.pop(0)
        if chance.random() < 0.25:
            name = chance.choice(CALLS)
            key = chance.randrange(6)
            return Request(name, False, None, (key, chance.randrange(1000)) if name == "add" else (key,))
        border = chance.choice(self.plan.borders)
        last = expected.last[border]
        others = [max(newest, last + 1) for name, newest in expected.last.items() if name != border]
        nexts = [*others, last + 1, last + 1] if others else [last + 1] * 3
        batch_id = chance.choice((None, *nexts, last + chance.randint(2, 3), chance.randint(1, last + 1)))
        count = chance.choice((0, 1, 1, 2, 3, chance.randint(4, 80)))
        numbers = tuple(chance.randrange(997) for _ in range(count))
        return Request(border, True, batch_id, numbers, chance.choice(("dicts", "dicts", "arrow", "record batch")))

    # --- What it shows -----------------------------------------------------------------------------------------------

    def _look_at(self, program: Program, fuse: Fuse) -> None:
        """Tables, windows and the trace are those of a state that may be."""
        try:
            dump = self._answer(program.app.call_async("dump"), fuse, program)
            if dump is None:
                raise _Died
            assert dump[0] == "reply", dump
            windows = [
                (one.name, staged, program.window(one.name, staged=staged))
                for one in self.plan.windows
                for staged in (False, True)
            ]
            trace = program.app.trace(TRACE_MAX)
        except _Died:
            raise
        except Exception as error:
            self._expect_death(fuse, error)
            raise _Died from error
        self._compare(tables_of(dump))
        for name, staged, numbers in windows:
            self.oracle.observed(
                f"window {name}, {staged=}",
                numbers,
                lambda state, name=name, staged=staged: state.shown(name, staged=staged),
            )
        self.oracle.traced(trace)
        # Only what ran to its end is in the trace, once for this runner.
        ran = [one for one in trace if one in program.runs]
        assert not broken_rule(self.plan, ran), broken_rule(self.plan, ran)

    def _compare(self, tables: dict[str, dict[int, int]]) -> None:
        drawn = tables.pop("drawn")
        self.oracle.observed("tables", tables, lambda state: state.tables)
        self.oracle.observed("keys of random numbers", set(drawn), lambda state: state.drawn)
        changed = {key: (value, drawn.get(key)) for key, value in self.drawn.items() if drawn.get(key) != value}
        assert not changed, f"random numbers that were drawn again: {changed}"
        self.drawn = drawn

    def _expect_death(self, fuse: Fuse, error: BaseException) -> None:
        if not fuse.is_blown and not _is_hiccup(error, fuse):
            raise error


def _is_hiccup(error: BaseException, fuse: Fuse) -> bool:
    """A start gives up where a request of it fails; it is for its user to try again."""
    chain: BaseException | None = error
    while chain is not None:
        if fuse.hiccups and "failed as the test said" in str(chain):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def _submit(program: Program, request: Request) -> "Future[Any]":
    if request.is_batch:
        rows = rows_of(list(request.given), request.form)
        return program.app.submit(request.procedure, rows, batch_id=request.batch_id)
    return program.app.call_async(request.procedure, *request.given)


def _rows(store: StateStore, table: str) -> dict[int, int]:
    return {row["k"]: row["v"] for batch in store.table(table).read() for row in batch.to_pylist()}


def run_history(seed: int) -> History:
    """Live through it; `AssertionError` says what was wrong."""
    history = History(seed)
    history.run()
    return history
