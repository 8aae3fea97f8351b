"""`kill -9` of the process that serves the voter, at random moments, while 64 clients vote."""

import itertools
import os
import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from voter.checker import Checker
from voter.generator import make_votes

from support.applications.serve_process import ServeProcess
from support.applications.served_voter import VARIANTS
from support.depth import DEPTH
from support.times import note
from tussock.compute import procedures as ps
from tussock.statestore import InvalidBatch, connect

KILLS = 3 * DEPTH
"""At least; a quarter of them is followed by another one while the successor starts."""
CLIENTS = 64
CONNECTIONS = 8
VOTES_MAX = 200_000
PHONES = 20_000
CONTESTANTS = 25
REPLIES_A_LIFE = 300
SECONDS = 300


class Voters:
    """Clients in threads, some to a connection, each of which votes again as soon as it has its reply.

    They take ids in turn, but no order holds between two connections: a batch may arrive, or come again after a kill,
    behind one with a later id. It is refused then, and its vote is given under another id.
    """

    def __init__(self, clients: list[ps.Client], seed: int) -> None:
        votes = make_votes(VOTES_MAX, seed, contestants=CONTESTANTS, phones=PHONES).to_pylist()
        self.given: dict[int, dict[str, int]] = {}
        """By batch id the vote."""
        self.replies: dict[int, Any] = {}
        self.refused: set[int] = set()
        """Ids that came behind a later one."""
        self.boards = 0
        self.failures: list[BaseException] = []
        self._votes = iter(votes)
        self._ids = itertools.count(1)
        self._turn = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._vote, args=(clients[at % len(clients)],)) for at in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(SECONDS)

    def await_replies(self, more: int) -> None:
        """Return once there are that many more replies."""
        wanted, deadline = len(self.replies) + more, time.monotonic() + SECONDS
        while len(self.replies) < wanted:
            assert not self.failures, self.failures[:3]
            assert time.monotonic() < deadline, f"{len(self.replies)} replies, and {wanted} were to come"
            time.sleep(0.002)

    def _vote(self, client: ps.Client) -> None:
        try:
            while not self._is_over.is_set():
                with self._turn:
                    vote = next(self._votes)
                number = self._give(client, vote)
                while number is None:
                    number = self._give(client, vote)
                if number % 100 == 0:
                    self._look(client)
        except BaseException as error:
            self.failures.append(error)

    def _give(self, client: ps.Client, vote: dict[str, int]) -> int | None:
        """The id under which the vote was answered; `None` if that was too old."""
        with self._turn:
            number = next(self._ids)
            ticket = client.submit("validate", [vote], batch_id=number)
        self.given[number] = vote
        try:
            self.replies[number] = ticket.result(SECONDS)
        except InvalidBatch:
            self.refused.add(number)
            return None
        return number

    def _look(self, client: ps.Client) -> None:
        try:
            board = client.call("board", timeout=SECONDS)
        except ps.OutcomeUnknown:
            # It was on its way when the process was killed.
            return
        assert board["valid"] >= 0
        self.boards += 1


class Node:
    """The process that serves, and its successors at the same address, each with other options."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self.kills = 0
        self._url = url
        self._chance = chance
        self._process = self._start()
        self.address = self._process.address

    def kill(self) -> None:
        """`kill -9`, and a successor; now and then that one, too, while it starts, recovers or begins to serve."""
        self._replace()
        if self._chance.random() < 0.25:
            time.sleep(self._chance.uniform(0.2, 2.0))
            self._replace()

    def end(self) -> int:
        self._process.terminate()
        return self._process.wait()

    def _replace(self) -> None:
        self._process.process.kill()
        self._process.wait()
        self.kills += 1
        self._process = self._start("--listen", self.address)

    def _start(self, *arguments: str) -> ServeProcess:
        variant = self._chance.choice(VARIANTS)
        return ServeProcess(self._url, *arguments, app=f"support.applications.served_voter:{variant}")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900 * DEPTH)
def test_a_node_that_is_killed_loses_no_vote_and_counts_none_twice(tmp_path: Path) -> None:
    """S6, S15, S17, S22: each vote has the reply that the checker gives in the order of the ids; so has the board."""
    url, seed = (tmp_path / "store").as_uri(), int(os.environ.get("VOTER_SEED", "1"))
    began = time.monotonic()
    chance = random.Random(seed)
    node = Node(url, chance)
    with ExitStack() as stack:
        clients = [stack.enter_context(ps.Client(node.address, deadline=SECONDS)) for _ in range(CONNECTIONS)]
        voters = Voters(clients, seed)
        while node.kills < KILLS:
            voters.await_replies(chance.randint(1, REPLIES_A_LIFE))
            node.kill()
        voters.await_replies(CLIENTS)
        voters.stop()
        assert not voters.failures, voters.failures[:3]
        board = clients[0].call("board", timeout=SECONDS)
        newest = max(voters.replies)
        again = clients[0].submit("validate", [voters.given[1]], batch_id=newest).result(SECONDS)
    assert node.end() == 0
    note(
        f"{node.kills} kills of a node, {len(voters.replies)} votes, {len(voters.refused)} ids too old (seed {seed})",
        time.monotonic() - began,
    )
    checker = Checker(contestants=CONTESTANTS)
    votes = {number: (voters.given[number]["phone"], voters.given[number]["contestant"]) for number in voters.replies}
    expected = {number: checker.batch([votes[number]]) for number in sorted(votes)}
    wrong = [(number, reply, expected[number]) for number, reply in voters.replies.items() if reply != expected[number]]
    assert not wrong, wrong[:5]
    assert again == expected[newest]
    assert board == checker.board()
    with connect(url) as store:
        found = store.table("votes").read(["phone", "contestant"])
        counted = [(row["phone"], row["contestant"]) for batch in found for row in batch.to_pylist()]
    assert sorted(vote for vote in counted if checker.votes_of(vote[1]) is not None) == checker.votes()
