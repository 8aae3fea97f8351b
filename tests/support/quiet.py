"""The benchmarks' own judgement of a busy machine, for tests that compare times with one another."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def quiet_module() -> ModuleType:
    """`benchmarks/quiet.py`; the benchmarks are programs, and no package."""
    spec = importlib.util.spec_from_file_location("quiet", ROOT / "benchmarks" / "quiet.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class QuietWatch:
    """Whether other programs leave the machine alone from now on."""

    def __init__(self) -> None:
        quiet = quiet_module()
        self._before = ""
        try:
            quiet.refuse_if_busy()
        except SystemExit as busy:
            self._before = str(busy)
        self._watch = quiet.Watch()

    def complaint(self) -> str:
        """Why times cannot be compared, empty if they can; asked when the test's own processes have ended."""
        return self._before or self._watch.complaint() or ""
