"""What a transaction of one record costs a flow, as a function of the streams that it goes through.

    python benchmarks/changelog_costs.py [--transactions 10000] [--rounds 7] [--checkpoint 3600]

Processor time, of all threads of the process: transactions that each update one row of 1,000 are pushed one behind the
other to chains of 1, 2, 5 and 9 streams in a store in memory. A stream's cost is the slope of a line through the
medians, and what pushing costs is where that begins. `--checkpoint 1` commits each second meanwhile.
"""

import argparse
import statistics
import time
from typing import Any

import numpy as np
import pyarrow as pa

from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

CHAINS = (1, 2, 5, 9)
KEYS = 1000
QUEUE = 1024
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


def _copy(row: Any) -> list[Any]:
    return [cl.upsert(k=row["k"], v=row["v"])]


def chain(store: StateStore, length: int, with_function: bool) -> list[cl.Stream]:
    """Streams of which each has the rows of the one before it."""
    streams = [cl.Stream(store, "s0", schema=SCHEMA, key=["k"], queue=QUEUE)]
    for at in range(1, length):
        streams.append(cl.Stream(store, f"s{at}", schema=SCHEMA, key=["k"], inputs=[streams[-1]]))
        if with_function:
            streams[-1].compute(_copy)
    return streams


def microseconds(length: int, with_function: bool, transactions: int, checkpoint: float) -> float:
    """Of a transaction."""
    with connect("memory://", compaction=False) as store:
        streams = chain(store, length, with_function)
        with cl.Flow(store, streams, checkpoint=checkpoint) as flow:
            for key in range(KEYS):
                streams[0].push([cl.upsert(k=key, v=0)])
            flow.drain()
            began = time.process_time()
            for at in range(transactions):
                streams[0].push([cl.upsert(k=at % KEYS, v=at)])
            flow.drain()
            return (time.process_time() - began) / transactions * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--checkpoint", type=float, default=3600.0, help="seconds between commits")
    options = parser.parse_args()
    print("| each stream | " + " | ".join(f"{length} streams, us" for length in CHAINS) + " | a push | a stream |")
    print("|---|" + "---:|" * (len(CHAINS) + 2))
    for with_function in (False, True):
        found = [
            [microseconds(length, with_function, options.transactions, options.checkpoint) for length in CHAINS]
            for _ in range(options.rounds)
        ]
        medians = [statistics.median(times) for times in zip(*found, strict=True)]
        slope, push = np.polyfit(CHAINS, medians, 1)
        cells = " | ".join(f"{one:,.0f}" for one in medians)
        print(f"| {'has a function' if with_function else 'passes it on'} | {cells} | {push:,.0f} | {slope:,.0f} |")


if __name__ == "__main__":
    main()
