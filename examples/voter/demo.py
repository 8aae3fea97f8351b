"""The voter at work: a board that changes as votes come in, and a check of all of it at the end.

    python examples/voter/demo.py [--votes 15000] [--seed 1] [--store FOLDER] [--input FOLDER]

64 votes are under way at any time, each in a batch of one, and a vote is done when its reply is durable. The board is
drawn anew every tenth of a second in a terminal; without one, a line is printed for every tenth of the votes. At the
end each reply and the last board are compared with `checker.py`; exit code 1 says that something differs.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from voter.application import make
from voter.board import COUNTED, NOT_IN, VOTED
from voter.checker import Checker
from voter.generator import make_votes

from tussock.compute.procedures import App
from tussock.statestore import connect

CONTESTANTS = 12
OUTSTANDING = 64
FRAME_SECONDS = 0.1
BAR = 30
NAMES = ("Ada", "Bert", "Cleo", "Dov", "Esme", "Finn", "Gwen", "Hugo", "Iris", "Jan", "Kim", "Lou")
WORDS = {COUNTED: "counted", NOT_IN: "for nobody in the show", VOTED: "from a phone without a vote left"}


class Screen:
    """Draws the board over the one before, or prints a line where there is no terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._is_terminal = sys.stdout.isatty()
        self._next_frame = 0.0
        self._tenth = max(total // 10, 1)
        self._next_line = self._tenth
        self._height = 0
        self._began = time.monotonic()

    def wants(self, done: int) -> bool:
        """Whether it is time for another board."""
        if self._is_terminal:
            return time.monotonic() >= self._next_frame
        return done >= self._next_line

    def show_last(self, board: dict[str, Any], done: int, replies: "Counter[int]") -> None:
        """The last board, unless its line was printed just now."""
        if self._is_terminal or done % self._tenth:
            self.show(board, done, replies)

    def show(self, board: dict[str, Any], done: int, replies: "Counter[int]") -> None:
        """The board after `done` votes."""
        self._next_frame = time.monotonic() + FRAME_SECONDS
        self._next_line = done - done % self._tenth + self._tenth
        rate = done / max(time.monotonic() - self._began, 0.001)
        left = f"{board['left']} contestants are left" if board["left"] > 1 else f"{_name(board['top'][0][0])} has won"
        head = f"{done:,} of {self._total:,} votes, {rate:,.0f} a second; {left}"
        if not self._is_terminal:
            places = ", ".join(f"{_name(number)} {votes}" for number, votes in board["top"])
            print(f"{head}; ahead: {places}", flush=True)
            return
        lines = [f"\033[1m{head}\033[0m", ", ".join(f"{replies[code]:,} {WORDS[code]}" for code in WORDS), ""]
        most = max([votes for _, votes in board["top"]] + [1])
        lines += ["\033[1;32mAhead\033[0m", *(_bar(number, votes, most, 32) for number, votes in board["top"]), ""]
        lines += ["\033[1;33mTrending: of the newest hundred votes\033[0m"]
        lines += [*(_bar(number, votes, 100, 33) for number, votes in board["trending"]), ""]
        if board["left"] > 1:
            lines += ["\033[1;31mThe last ones, the first of whom goes next\033[0m"]
            lines += [_bar(number, votes, most, 31) for number, votes in board["bottom"]]
        # Up to where the last board began, and rid of what is there.
        up = f"\033[{self._height}A" if self._height else ""
        print(up + "\033[J" + "\n".join(lines), flush=True)
        self._height = len(lines)


def _name(number: int) -> str:
    return NAMES[number - 1]


def _bar(number: int, votes: int, most: int, colour: int) -> str:
    return f"  {_name(number):<5} {votes:>7,} \033[{colour}m{'█' * round(BAR * votes / most)}\033[0m"


def run(app: App, rows: list[dict[str, int]]) -> tuple[list[list[int]], dict[str, Any]]:
    """Submit all votes, 64 at a time; all replies, and the last board."""
    replies: list[list[int]] = []
    counts: Counter[int] = Counter()
    tickets: deque[Any] = deque()
    screen = Screen(len(rows))

    def take() -> None:
        replies.append(tickets.popleft().result(60))
        counts.update(replies[-1])
        if screen.wants(len(replies)):
            screen.show(app.call("board"), len(replies), counts)

    for row in rows:
        if len(tickets) == OUTSTANDING:
            take()
        tickets.append(app.submit("validate", [row]))
    while tickets:
        take()
    board = app.call("board")
    screen.show_last(board, len(replies), counts)
    return replies, board


def check(rows: list[dict[str, int]], replies: list[list[int]], board: dict[str, Any]) -> int:
    """How many replies are wrong, and 1 more if the board is; says so."""
    checker = Checker(contestants=CONTESTANTS)
    wrong = 0
    for at, row in enumerate(rows):
        expected = checker.batch([(row["phone"], row["contestant"])])
        if replies[at] != expected:
            wrong += 1
            print(f"vote {at}, {row}: replied {replies[at]}, expected {expected}")
    if board != checker.board():
        wrong += 1
        print(f"the board is {board}, expected {checker.board()}")
    if not wrong:
        print(f"checked: all {len(rows):,} replies and the board are right")
    return wrong


def main() -> int:
    """Run the show in a store, and check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=int, default=15_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", type=Path, help="an empty folder; otherwise one that is deleted afterwards")
    parser.add_argument("--input", type=Path, help="a folder for the input log; otherwise it is in the store")
    options = parser.parse_args()
    rows = make_votes(options.votes, options.seed, contestants=CONTESTANTS).to_pylist()
    with tempfile.TemporaryDirectory(prefix="voter-") as scratch:
        folder = options.store or Path(scratch) / "store"
        log = options.input.resolve().as_uri() if options.input else None
        with connect(folder.resolve().as_uri()) as store, make(store, contestants=CONTESTANTS, input=log) as app:
            replies, board = run(app, rows)
            stats = app.stats()
    print(f"{stats['log_writes']:,} groups of the input log and {stats['commits']:,} epochs made them durable")
    return 1 if check(rows, replies, board) else 0


if __name__ == "__main__":
    sys.exit(main())
