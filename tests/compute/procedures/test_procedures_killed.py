"""`kill -9` of a process that serves an application, at random moments, the start of its successor included."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.depth import DEPTH
from support.procedures import child
from support.procedures.child import after_all, journaled, place_of, requests_of
from support.procedures.oracle import broken_rule
from support.procedures.programs import Program, outcome_of, tables_of
from tussock.statestore import connect

FIRST = int(os.environ.get("PROCEDURE_FIRST_SEED", "1"))
PLANS, KILLS = 2 * DEPTH, 4
"""Applications, and how often the process of each is killed."""
BATCHES_A_LIFE = 60
SECONDS_MAX = 120


class Lives:
    """A process, and its successors."""

    def __init__(self, folder: Path, url: str, seed: int, batches: int) -> None:
        self.journal = folder / "journal"
        self.log = folder / "child.log"
        self.kills: list[str] = []
        self._chance = random.Random(seed)
        self._command = [sys.executable, "-P", child.__file__, url, str(seed), str(batches), str(self.journal)]

    def live_and_die(self) -> None:
        """One process, killed while it imports, recovers, serves or ends."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            kind = self._chance.choice(("start", "serve", "serve", "serve"))
            if kind == "start":
                time.sleep(self._chance.uniform(0.4, 1.5))
            else:
                self._await_replies(process, self._chance.randint(1, BATCHES_A_LIFE))
                time.sleep(self._chance.uniform(0, 0.02))
        finally:
            process.kill()
            process.wait()
        self.kills.append(f"{kind}, {len(journaled(self.journal))} replies")

    def live(self) -> None:
        """The last process, which comes to its end."""
        with self.log.open("ab") as log:
            ended = subprocess.run(self._command, stdout=log, stderr=log, timeout=600, check=False)
        assert ended.returncode == 0, self.log.read_text(errors="replace")[-3000:]

    def _await_replies(self, process: "subprocess.Popen[bytes]", more: int) -> None:
        wanted = self._lines() + more
        deadline = time.monotonic() + SECONDS_MAX
        while self._lines() < wanted and process.poll() is None:
            assert time.monotonic() < deadline, self.log.read_text(errors="replace")[-3000:]
            time.sleep(0.002)
        assert process.poll() in (None, 0), self.log.read_text(errors="replace")[-3000:]

    def _lines(self) -> int:
        return self.journal.read_bytes().count(b"\n") if self.journal.exists() else 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + PLANS))
def test_a_process_that_is_killed_loses_no_batch_and_runs_none_twice(tmp_path: Path, seed: int) -> None:
    """S6, S17, S19, S22: each batch has one reply, the interpreter's, and the tables are its tables."""
    url = (tmp_path / "store").as_uri()
    batches = KILLS * BATCHES_A_LIFE
    plan, requests = requests_of(seed, batches)
    lives = Lives(tmp_path, url, seed, batches)
    for _ in range(KILLS):
        lives.live_and_die()
    lives.live()
    state, outcomes = after_all(plan, requests)
    told = journaled(lives.journal)
    assert [number for number, _ in told] == list(range(batches)), lives.kills
    wrong = [(number, outcome, outcomes[number]) for number, outcome in told if outcome != outcomes[number]]
    assert not wrong, (wrong[:3], lives.kills)
    assert (tmp_path / "store-input").exists() == (seed % 2 == 0)
    with connect(url, compaction=False) as store:
        program = Program(plan, store, input=place_of(url, seed))
        with program.app as app:
            tables = tables_of(outcome_of(app.call_async("dump")))
            assert set(tables.pop("drawn")) == state.drawn
            assert tables == state.tables, lives.kills
            for window in plan.windows:
                for staged in (False, True):
                    assert program.window(window.name, staged=staged) == state.shown(window.name, staged=staged)
            # Given again, the last ones get their first replies.
            for request, outcome in list(zip(requests, outcomes, strict=True))[-5:]:
                assert outcome_of(app.submit(request.procedure, [], batch_id=request.batch_id)) == outcome
        assert not program.runs
    assert not broken_rule(plan, state.trace)
