"""SSTs that lie in `tests/golden`: they are written as they were, by the scripts beside them."""

import runpy
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[3] / "tests" / "golden"
SCRIPTS = {name: runpy.run_path(str(GOLDEN / f"write_sst_{name}.py")) for name in ("history", "bounds")}


@pytest.mark.parametrize(("kind", "codec"), [(kind, one) for kind in SCRIPTS for one in SCRIPTS[kind]["CODECS"]])
def test_golden_files_are_what_the_writer_writes(kind: str, codec: str) -> None:
    """A changed byte is a changed format: that takes a new version and new golden files."""
    for name, data in SCRIPTS[kind]["files"](codec).items():
        assert data == (GOLDEN / "sst" / kind / name).read_bytes(), name
