"""Which images are too old for a store, by their tags, and by the last words of their nodes."""

import re
from importlib import metadata
from pathlib import Path

import pytest

from tussock.meta.log.format import FORMAT_VERSION
from tussock.operator.planning.words.releases import LOG_FORMATS, downgrade_refusal, newer_format

UPGRADES = Path(__file__).resolve().parents[4] / "docs" / "upgrades.md"
NEXT = FORMAT_VERSION + 1


def test_the_present_release_is_in_the_table() -> None:
    """With the format that it writes: a release that brings a new one brings a new row."""
    major, minor, _ = metadata.version("tussock").split(".", 2)
    assert LOG_FORMATS[int(major), int(minor)] == FORMAT_VERSION
    assert max(LOG_FORMATS.values()) == FORMAT_VERSION


def test_the_documented_table_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| ([0-9]+)\.([0-9]+) \| [0-9, ]+ \| ([0-9]+) \|$", UPGRADES.read_text(encoding="utf-8"), re.M)
    assert {(int(major), int(minor)): int(found) for major, minor, found in rows} == LOG_FORMATS


@pytest.mark.parametrize(
    ("image", "log_format", "refused"),
    [
        ("registry.example:5000/tussock-node:0.1.0", NEXT, True),
        ("tussock-node:0.1", NEXT, True),
        ("tussock-node:v0.1.7", NEXT, True),
        (f"tussock-node:0.1.0@sha256:{'0' * 64}", NEXT, True),
        ("tussock-node:0.1.0", FORMAT_VERSION, False),
        ("tussock-node:0.1.0", 0, False),
        # Nobody knows what is in these: their first pod shows it.
        ("tussock-node:0.2.0", NEXT, False),
        ("tussock-node:0.1.0-ours", NEXT, False),
        ("tussock-node:next", NEXT, False),
        ("tussock-node", NEXT, False),
        ("registry.example:0.1/tussock-node", NEXT, False),
        (f"tussock-node@sha256:{'0' * 64}", NEXT, False),
    ],
)
def test_an_image_is_refused_by_its_release(image: str, log_format: int, refused: bool) -> None:
    told = downgrade_refusal(image, log_format, "node:0.2.0")
    assert bool(told) == refused
    if refused:
        assert f"{image} is of Tussock 0.1, which reads logs up to format {FORMAT_VERSION}" in told
        assert (
            f"in format {NEXT}. The operator has started no node with it. The meta nodes keep image node:0.2.0." in told
        )
        assert "restore a backup from before the upgrade into a new StateStore" in told


@pytest.mark.parametrize("said", ["", "error: the bucket is away", "open the door with a newer key"])
def test_other_last_words_are_no_downgrade(said: str) -> None:
    assert newer_format(said) == ""
