"""What it takes to renew 1,000 pins of a meta node, in a folder and in a bucket that is far away: prints JSON.

    python benchmarks/pins_bench.py [--pins N] [--rounds N] [--folder FOLDER]

Each round writes every pin once more, as the node does every third of their lease. The bucket that is far away is one
in memory, each of whose requests takes as long as is said, as one of S3 in the same region does; it has no limit of
requests at once. Seconds are medians of the rounds.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from tussock.meta.meta_store import MetaStore
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore

PINS = 1000
ROUNDS = 5
DISTANT_SECONDS = (0.02, 0.05, 0.1)


class Distant:
    """A bucket whose writes take a while, once that is said."""

    def __init__(self, bucket: ObjectStore) -> None:
        self._bucket = bucket
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def put(self, path: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        """Write an object, after a while."""
        time.sleep(self.seconds)
        self._bucket.put(path, data)


def held(meta: MetaStore, pins: int) -> MetaStore:
    """The store, with that number of pins."""
    for _ in range(pins):
        meta.pins.pin(None)
    return meta


def renewed(meta: MetaStore, rounds: int) -> dict[str, float]:
    """Seconds, and those of the processor, that a renewal of all pins takes."""
    took, used = [], []
    for _ in range(rounds):
        began, spent = time.monotonic(), time.process_time()
        meta.pins.renew()
        took.append(time.monotonic() - began)
        used.append(time.process_time() - spent)
    return {
        "seconds": round(statistics.median(took), 3),
        "slowest": round(max(took), 3),
        "processor": round(statistics.median(used), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pins", type=int, default=PINS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, default=None, help="on a disk; a temporary one unless given")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    system = RealSystem()
    found: dict[str, object] = {"pins": options.pins}
    try:
        meta = held(MetaStore(open_bucket(folder.as_uri(), system=system), system), options.pins)
        found["folder"] = renewed(meta, options.rounds)
        meta.pins.release_all()
    finally:
        shutil.rmtree(folder)
    distant = Distant(open_bucket("memory://", system=system))
    meta = held(MetaStore(cast(ObjectStore, distant), system), options.pins)
    for distant.seconds in DISTANT_SECONDS:
        found[f"{1000 * distant.seconds:.0f} ms a request"] = renewed(meta, options.rounds)
    distant.seconds = 0.0
    meta.pins.release_all()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
