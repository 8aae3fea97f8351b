"""The operator's image has no Arrow, Polars or NumPy, so no module of the operator may import them."""

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyarrow", "polars", "numpy", "pandas"):
            raise ImportError(f"{name} is not in the operator's image")

sys.meta_path.insert(0, Refuse())
import tussock.operator
for module in pkgutil.walk_packages(tussock.operator.__path__, "tussock.operator."):
    importlib.import_module(module.name)
    print(module.name)
"""


def test_operator_needs_no_tables() -> None:
    """A process without the three packages imports every module of the operator."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "tussock.operator.planning.words.model" in done.stdout
