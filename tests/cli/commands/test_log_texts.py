"""`tussock log`: each kind of delta has its line of text; the golden entries have one of each."""

from pathlib import Path

import pytest

from tussock.cli.commands.log import describe
from tussock.meta.log.format import decode_entry

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "log" / "v2"


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("00000000000000000005", ["start term 3: host:7:ab leads, at meta-0:7370"]),
        ("00000000000000000012", ["open writer job-1, generation 1"]),
        (
            "00000000000000000013",
            [
                "commit epoch 3: #1 3 rows in 1 SST, writer job-1 batch 8 generation 1",
                "commit epoch 4: #1 3 rows in 1 SST, writer job-2 batch 0",
            ],
        ),
        ("00000000000000000014", ["begin backup nightly"]),
        ("00000000000000000015", ["finish backup nightly: 3 SSTs, 13.5 KiB"]),
        ("clone-00000000000000000001", ["begin as clone of version 17 of s3://other/store"]),
        ("clone-00000000000000000003", ["delete backup x"]),
    ],
)
def test_a_delta_is_one_line_of_text(name: str, texts: list[str]) -> None:
    """The line says what the delta does and to what; tables are named by id if the name is unknown."""
    entry = decode_entry(name, int(name.removeprefix("clone-")), (GOLDEN / f"{name}.delta").read_bytes())
    assert [describe(delta) for delta in entry.deltas] == texts


def test_every_kind_of_delta_has_a_text() -> None:
    """Every kind has a text, and no text is empty."""
    for path in GOLDEN.glob("*.delta"):
        seq = int(path.name.removeprefix("clone-").removesuffix(".delta"))
        for delta in decode_entry(path.name, seq, path.read_bytes()).deltas:
            assert describe(delta)
    (detached,) = decode_entry("detached", 4, (GOLDEN / "detached").read_bytes()).deltas
    assert describe(detached) == "detach from s3://other/store"
