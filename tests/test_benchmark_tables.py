"""The table of the benchmarks can be made of whatever they measure, before hours of measuring show that it cannot."""

import json
import subprocess
import sys

from support.quiet import ROOT

_PROGRAM = """
import json, sys
sys.path.insert(0, "benchmarks")
import run
from figures import FIGURES
one = {name: {"rate": rate} for name, rate in (("tussock", 3.0), ("rocksdict", 2.0), ("slatedb", 1.0))}
versions = {"rates": {"retained": 9.0, "none": 10.0, "oldest": 1.0}}
samples = {figure.case: [one] * 3 for figure in FIGURES}
found = run.all_ratios({"samples": samples, "versions": [versions] * 3, "spark": None})
print(json.dumps([[line.title, line.peer, line.ratio] for line in found]))
"""


def test_each_figure_has_a_line() -> None:
    """Story: 5 rounds of `make bench` ended with a `KeyError` where the table was made."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert [peer for title, peer, _ in found if title.startswith("single get, hot")] == ["RocksDB", "SlateDB"]
    assert found[-1] == ["scan of the present, 100 versions a key retained", "retention=0", 0.9]
