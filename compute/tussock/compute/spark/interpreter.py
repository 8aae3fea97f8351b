"""The Python that Spark's workers run.

Spark starts `python3` from the PATH unless `PYSPARK_PYTHON` is set. If a virtual environment is not activated, that is
another Python, which has neither Arrow nor Tussock, and every task would fail.
"""

import os
import shutil
import sys
from pathlib import Path

__all__ = ["settle_worker_python"]

_VARIABLE = "PYSPARK_PYTHON"


def settle_worker_python() -> None:
    """Let workers run this interpreter, if nothing else is set and the PATH finds one outside its virtual environment.

    Call it before the session starts. If executors run on other machines, set `PYSPARK_PYTHON`.
    """
    found = shutil.which("python3")
    inside = found is not None and Path(found).absolute().parent.parent == Path(sys.prefix).absolute()
    if _VARIABLE not in os.environ and sys.prefix != sys.base_prefix and not inside:
        os.environ[_VARIABLE] = sys.executable
