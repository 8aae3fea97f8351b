"""`kill -9` of the process that serves the voter, at random moments, while 64 clients vote."""

import itertools
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from voter.checker import Checker
from voter.generator import make_votes

from support.applications.serve_process import ServeProcess
from support.depth import DEPTH
from tussock.compute import procedures as ps
from tussock.statestore import connect

KILLS = 5 * DEPTH
CLIENTS = 64
VOTES_MAX = 200_000
CONTESTANTS = 25
REPLIES_A_LIFE = 600
SECONDS = 300


class Voters:
    """Clients in threads, each of which votes again as soon as it has its reply."""

    def __init__(self, client: ps.Client, seed: int) -> None:
        self.votes = make_votes(VOTES_MAX, seed, contestants=CONTESTANTS).to_pylist()
        self.replies: dict[int, Any] = {}
        """By batch id, which is the number of the vote."""
        self.boards = 0
        self.failures: list[BaseException] = []
        self._client = client
        self._ids = itertools.count(1)
        self._turn = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._vote) for _ in range(CLIENTS)]
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

    def _vote(self) -> None:
        try:
            while not self._is_over.is_set():
                # Ids ascend in the order in which batches are given.
                with self._turn:
                    number = next(self._ids)
                    ticket = self._client.submit("validate", [self.votes[number - 1]], batch_id=number)
                self.replies[number] = ticket.result(SECONDS)
                if number % 100 == 0:
                    self._look()
        except BaseException as error:
            self.failures.append(error)

    def _look(self) -> None:
        try:
            board = self._client.call("board", timeout=SECONDS)
        except ps.OutcomeUnknown:
            # It was on its way when the process was killed.
            return
        assert board["valid"] >= 0
        self.boards += 1


@pytest.mark.slow
@pytest.mark.timeout(900 * DEPTH)
def test_a_node_that_is_killed_loses_no_vote_and_counts_none_twice(tmp_path: Path) -> None:
    """S6, S17, S22: every vote has the reply that the checker gives in the order of the ids, and so has the board."""
    url, seed = (tmp_path / "store").as_uri(), int(os.environ.get("VOTER_SEED", "1"))
    chance = random.Random(seed)
    node = ServeProcess(url, app="voter.application:make")
    address = node.address
    with ps.Client(address, deadline=SECONDS) as client:
        voters = Voters(client, seed)
        for _ in range(KILLS):
            voters.await_replies(chance.randint(1, REPLIES_A_LIFE))
            node.process.kill()
            node.wait()
            node = ServeProcess(url, "--listen", address, app="voter.application:make")
            if chance.random() < 0.25:
                # While it starts, recovers or begins to serve.
                time.sleep(chance.uniform(0.2, 2.0))
                node.process.kill()
                node.wait()
                node = ServeProcess(url, "--listen", address, app="voter.application:make")
        voters.await_replies(CLIENTS)
        voters.stop()
        assert not voters.failures, voters.failures[:3]
        board = client.call("board", timeout=SECONDS)
        newest = max(voters.replies)
        again = client.submit("validate", [voters.votes[0]], batch_id=newest).result(SECONDS)
    node.terminate()
    assert node.wait() == 0
    checker = Checker(contestants=CONTESTANTS)
    votes = [(vote["phone"], vote["contestant"]) for vote in voters.votes[:newest]]
    expected = {number: checker.batch([vote]) for number, vote in enumerate(votes, 1)}
    assert voters.replies == expected
    assert again == expected[newest]
    assert board == checker.board()
    with connect(url) as store:
        found = store.table("votes").read(["phone", "contestant"])
        counted = [(row["phone"], row["contestant"]) for batch in found for row in batch.to_pylist()]
    assert sorted(vote for vote in counted if checker.votes_of(vote[1]) is not None) == checker.votes()
