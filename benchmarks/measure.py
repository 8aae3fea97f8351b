"""Runs one case of one engine in this process and prints one line of JSON; started by `run.py` for every sample.

python benchmarks/measure.py ENGINE CASE FOLDER ROWS
"""

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    engine, case, folder, rows = sys.argv[1:]
    sample = getattr(importlib.import_module(f"{engine}_cases"), case)(Path(folder), int(rows))
    # `ru_maxrss` would count what the process had before `exec`, too.
    told = Path("/proc/self/status").read_text()
    sample["peak_bytes"] = int(told.partition("VmHWM:")[2].split()[0]) * 1024
    print(json.dumps(sample))


if __name__ == "__main__":
    main()
