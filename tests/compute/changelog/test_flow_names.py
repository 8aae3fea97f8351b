"""What a flow and a stream show is what their pages tell of; the machinery is not among it."""

import re
from pathlib import Path

import pytest

from tussock.compute import changelog as cl

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = "".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("changelog*.md")))


@pytest.mark.parametrize("kind", [cl.Flow, cl.Stream])
def test_each_name_is_documented(kind: type) -> None:
    """As `flow.NAME` or `stream.NAME`."""
    word = kind.__name__.lower()
    told = set(re.findall(rf"\b{word}\.(\w+)", PAGES))
    assert [name for name in dir(kind) if not name.startswith("_") and name not in told] == []
