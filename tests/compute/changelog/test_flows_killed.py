"""`kill -9` of a process that runs a flow, at random moments, the start of its successor included (CE12)."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.changelog import child
from support.changelog.child import SUBSCRIBED, child_flow, pushes_of, read_lines
from support.changelog.put_oracle import Rows, apply_published, put
from support.depth import DEPTH
from tussock.statestore import connect

FIRST = int(os.environ.get("FLOW_FIRST_SEED", "1"))
KILLS = 3 if DEPTH == 1 else 10
PUSHES_A_LIFE = 150
SECONDS_MAX = 120


class FlowLives:
    """A process, and its successors."""

    def __init__(self, folder: Path, seed: int, pushes: int) -> None:
        self._folder = folder
        self.log = folder / "child.log"
        self._chance = random.Random(seed)
        self._command = [
            sys.executable, "-P", child.__file__, (folder / "store").as_uri(), str(seed), str(pushes), str(folder),
        ]  # fmt: skip

    def live_and_die(self) -> None:
        """One process, killed while it imports, recovers, works or ends."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            if self._chance.random() < 0.2:
                time.sleep(self._chance.uniform(0.4, 1.5))
            else:
                self._await_answers(process, self._chance.randint(1, PUSHES_A_LIFE))
                time.sleep(self._chance.uniform(0, 0.02))
        finally:
            process.kill()
            process.wait()

    def live(self) -> None:
        """The last process, which comes to its end."""
        with self.log.open("ab") as log:
            ended = subprocess.run(self._command, stdout=log, stderr=log, timeout=600, check=False)
        assert ended.returncode == 0, self.told()

    def told(self) -> str:
        """What the processes have written last."""
        return self.log.read_text(errors="replace")[-3000:]

    def _await_answers(self, process: "subprocess.Popen[bytes]", more: int) -> None:
        wanted = self._lines() + more
        deadline = time.monotonic() + SECONDS_MAX
        while self._lines() < wanted and process.poll() is None:
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.002)
        assert process.poll() in (None, 0), self.told()

    def _lines(self) -> int:
        path = self._folder / "answered"
        return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + DEPTH))
def test_a_flow_that_is_killed_has_each_effect_once(tmp_path: Path, seed: int) -> None:
    """All pushes are there in order; streams, histories and tables agree; subscribers missed and got nothing twice."""
    pushes = KILLS * PUSHES_A_LIFE
    lives = FlowLives(tmp_path, seed, pushes)
    for _ in range(KILLS):
        lives.live_and_die()
    lives.live()
    answers = read_lines(tmp_path / "answered")
    assert all(number == seq for number, seq in answers)
    assert [number for number, _ in answers] == sorted({number for number, _ in answers})
    with connect((tmp_path / "store").as_uri(), compaction=False) as store, child_flow(store) as flow:
        source = flow.streams["source"]
        assert [one.records for one in source.in_history()] == list(pushes_of(seed, pushes))
        rows: Rows = {}
        for records, one in zip(pushes_of(seed, pushes), source.out_history(), strict=True):
            effect = put(rows, records)
            assert effect is not None
            rows = effect[0]
            assert one.records == effect[1]
        for name, stream in flow.streams.items():
            shown: Rows = {}
            for one in stream.out_history():
                apply_published(shown, one)
            assert {row["k"]: row for batch in store.table(name).read() for row in batch.to_pylist()} == shown
            if name in SUBSCRIBED:
                expected = [
                    [one.seq, [repr(part) for record in one for part in (record, record.old) if part is not None]]
                    for one in stream.out_history()
                ]
                assert read_lines(tmp_path / f"seen-{name}") == expected
        assert store.table("newest").multi_get([child.KEYS]).is_valid().to_pylist() == [True]
