"""What a scrape of the operator costs, by the number of resources: processor time, series and bytes.

    python benchmarks/resource_metrics.py [--resources 100 1000 10000] [--rounds 9]

Each five resources are a store, its Meta, its Compactor, a job in trouble and a schedule of backups, with six pods:
all have every series that they can have. No request and no cluster takes part. Prints one JSON object; times are the
median of the rounds, in milliseconds of the thread's processor time.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.operator.metrics.shown_resources import START, ShownResources  # noqa: E402 - found by the path above
from tussock.operator.planning.words.conditions import Reason, problem_verdict  # noqa: E402
from tussock.operator.planning.words.model import stamp  # noqa: E402


def resources(count: int) -> ShownResources:
    """That many resources, with their pods."""
    shown, when = ShownResources(), stamp(START)
    failed = problem_verdict(Reason.DRIVER_FAILED, "its driver failed")
    for number in range(count // 5):
        name = f"shop-{number}"
        shown.put("StateStore", name, certificatesExpireTime=when)
        shown.put("Meta", name)
        shown.put("Compactor", name)
        program, about = {"application": {"file": "/opt/job.py"}}, {"restarts": 1, "committedTime": when}
        shown.put("Compute", name, failed, spec=program, certificatesExpireTime=when, **about)
        shown.put("StateStoreBackup", name, spec={"schedule": "0 * * * *"}, lastBackupTime=when)
        for kind in ("Meta", "Compactor", "Compute"):
            for pod in range(2):
                shown.put_pod((kind, name), f"{kind.lower()}-{name}-{pod}", 1, 0)
    return shown


def measure(count: int, rounds: int) -> dict[str, float]:
    """The figures of a scrape of that many resources."""
    shown = resources(count)
    times = []
    with shown.metrics.showing(shown.collector):
        for _ in range(rounds):
            begun = time.thread_time()
            text = shown.metrics.render()
            times.append(time.thread_time() - begun)
    series = sum(line.startswith(b"tussock_resource_") for line in text.splitlines())
    return {"milliseconds": round(statistics.median(times) * 1000, 1), "series": series, "bytes": len(text)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--resources", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(json.dumps({count: measure(count, options.rounds) for count in options.resources}))


if __name__ == "__main__":
    main()
