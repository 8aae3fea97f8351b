"""Processes that ask functions and are killed at random moments, and what their journal and the tables have to be."""

import random
import subprocess
import sys
import time
from pathlib import Path

from support.children import EXAMPLES, child_environment
from support.functions import transfer_process
from support.functions.accounts import accounts
from support.functions.transfer_process import ACCOUNTS, BALANCE, input_of, journaled, said, send, transfers
from tussock.compute import functions as fn
from tussock.statestore import connect

__all__ = ["REPLIES_A_LIFE", "Lives", "kill_transfers"]

REPLIES_A_LIFE = 1200
SECONDS_MAX = 120


class Lives:
    """A process, and its successors."""

    def __init__(
        self, folder: Path, program: str, url: str, seed: int, count: int, replies: int, workers_max: int = 0
    ) -> None:
        """`program` plays `count` requests; it lives for `replies` at most, and draws how many workers it has."""
        self.journal = folder / "journal"
        self.kills: list[str] = []
        self._log = folder / "process.log"
        self._chance = random.Random(seed)
        self._replies = replies
        self._command = [sys.executable, program, url, str(seed), str(count), str(self.journal), str(workers_max)]
        self._environment = child_environment(EXAMPLES)

    def live_and_die(self) -> None:
        """One process, killed while it imports, recovers or serves."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)
        try:
            kind = self._chance.choice(("start", "serve", "serve", "serve"))
            if kind == "start":
                time.sleep(self._chance.uniform(0.4, 1.5))
            else:
                self._await_replies(process, self._chance.randint(1, self._replies))
                time.sleep(self._chance.uniform(0, 0.02))
        finally:
            process.kill()
            process.wait()
        self.kills.append(f"{kind}, {self._lines()} replies")

    def live(self) -> None:
        """The last process, which comes to its end."""
        with self._log.open("ab") as log:
            ended = subprocess.run(
                self._command, stdout=log, stderr=log, timeout=600, check=False, env=self._environment
            )
        assert ended.returncode == 0, self._told()

    def _await_replies(self, process: "subprocess.Popen[bytes]", more: int) -> None:
        wanted = self._lines() + more
        deadline = time.monotonic() + SECONDS_MAX
        while self._lines() < wanted and process.poll() is None:
            assert time.monotonic() < deadline, self._told()
            time.sleep(0.002)
        assert process.poll() in (None, 0), self._told()

    def _lines(self) -> int:
        return self.journal.read_bytes().count(b"\n") if self.journal.exists() else 0

    def _told(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def kill_transfers(folder: Path, seed: int, kills: int, workers_max: int = 0) -> None:
    """Each request has one reply, whenever it is asked for, and the accounts are the ledger."""
    url = (folder / "store").as_uri()
    requests = transfers(seed, (kills + 1) * REPLIES_A_LIFE)
    keys = [f"a{at}" for at in range(ACCOUNTS)]
    with connect(url, compaction=False) as store:
        fn.Runtime(store, "bank", [accounts()]).load("account", [{"key": key, "balance": BALANCE} for key in keys])
    lives = Lives(folder, transfer_process.__file__, url, seed, len(requests), REPLIES_A_LIFE, workers_max)
    for _ in range(kills):
        lives.live_and_die()
    lives.live()
    replies: dict[int, str] = {}
    for number, reply in journaled(lives.journal):
        assert replies.setdefault(number, reply) == reply, (number, lives.kills)
    assert sorted(replies) == list(range(len(requests))), lives.kills
    ledger = dict.fromkeys(keys, BALANCE)
    for number, one in enumerate(requests):
        if replies[number] != f"not enough credit: {one.debtor}":
            assert int(replies[number]) >= 0
            ledger[one.debtor] -= one.amount
            ledger[one.creditor] += one.amount
    with connect(url, compaction=False) as store:
        with fn.Runtime(store, "bank", [accounts()], input=input_of(url, seed)) as runtime:
            found = {key: (runtime.query("account", key) or {})["balance"] for key in keys}
            assert found == ledger, lives.kills
            before = runtime.stats()["tid"]
            futures = [send(runtime, number, one) for number, one in enumerate(requests)]
            assert [said(future) for future in futures] == [replies[number] for number in range(len(requests))]
            assert runtime.stats()["tid"] == before
        assert sum(found.values()) == ACCOUNTS * BALANCE
    assert len({reply for reply in replies.values() if reply.startswith("not")}) > 1
