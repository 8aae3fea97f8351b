"""What the stream of `board_stream.py` has to have written, computed from the number of its events alone.

    TUSSOCK_STORE=tussock://... python board_truth.py [--at-least EVENTS]

reads all tables at one epoch and compares them; it ends with exit code 1 and the difference if anything is wrong.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any

from tussock.statestore import StateStore, connect

CARRIERS = ("AA", "B6", "DL", "EV", "MQ", "UA", "WN")
ORIGINS = ("EWR", "JFK", "LGA")
LAG = 40
"""A flight departs when this number of others was scheduled after it, and arrives after the same number again."""
CANCELLED_EVERY = 50

Row = dict[str, Any]


def events(count: int) -> Iterator[tuple[int, str, int]]:
    """The first `count` numbers as events: flight, what happened to it, its delay in minutes."""
    for number in range(count):
        step = number % 3
        flight = number // 3 - step * LAG
        cancelled = flight % CANCELLED_EVERY == 0
        if flight < 0 or (cancelled and step == 2):
            continue
        status = ("scheduled", "cancelled" if cancelled else "departed", "arrived")[step]
        yield flight, status, flight * 37 % 61 - 10


def truth(count: int) -> tuple[dict[int, Row], dict[str, Row]]:
    """The board by flight, and the totals by carrier, after `count` events."""
    board: dict[int, Row] = {}
    totals: dict[str, Row] = {}
    for flight, status, delay in events(count):
        carrier = CARRIERS[flight % len(CARRIERS)]
        delayed = delay if status in ("departed", "arrived") else None
        origin = ORIGINS[flight % len(ORIGINS)]
        board[flight] = {"flight": flight, "carrier": carrier, "origin": origin, "status": status, "delay": delayed}
        start = dict.fromkeys(("scheduled", "departed", "arrived", "cancelled", "delay"), 0)
        row = totals.setdefault(carrier, {"carrier": carrier, **start, "worst_delay": None})
        row[status] += 1
        if status == "departed":
            row["delay"] += delay
            row["worst_delay"] = delay if row["worst_delay"] is None else max(row["worst_delay"], delay)
    return board, totals


def differences(store: StateStore) -> tuple[int, list[str]]:
    """How many events are in the store at its newest epoch, and what is wrong there (at most ten things)."""
    with store.pin_snapshot() as snapshot:
        found = {
            name: [row for batch in snapshot.table(name).read() for row in batch.to_pylist()]
            for name in ("board", "carrier_totals", "progress")
        }
    count = sum(row["events"] for row in found["progress"])
    board, totals = truth(count)
    wrong = _compare("board", {row["flight"]: row for row in found["board"]}, board)
    wrong += _compare("carrier_totals", {row["carrier"]: row for row in found["carrier_totals"]}, totals)
    return count, wrong[:10]


def _compare(table: str, found: dict[Any, Row], expected: dict[Any, Row]) -> list[str]:
    return [
        f"{table} {key}: found {found.get(key)}, expected {expected.get(key)}"
        for key in sorted(found.keys() | expected.keys())
        if found.get(key) != expected.get(key)
    ]


def main() -> int:
    """Compare, and say how it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-least", type=int, default=1, help="fewer events than that are wrong, too")
    options = parser.parse_args()
    with connect(os.environ["TUSSOCK_STORE"]) as store:
        count, wrong = differences(store)
    if count < options.at_least:
        wrong.append(f"progress: {count} events, expected {options.at_least} at least")
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{count} events, {'as they should be' if not wrong else 'and the tables are WRONG'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
