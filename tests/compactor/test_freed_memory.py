"""A long compaction gives back what it has freed."""

import os
import platform
from pathlib import Path

import pytest

from tussock.compactor import freed_memory
from tussock.compactor.freed_memory import EVERY_BYTES, FreedMemory, give_back

PIECES = 4000
PIECE_BYTES = 50_000


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed, and can give it back")
def test_gaps_in_the_heap_are_given_back() -> None:
    """Of 200 MB in pieces, of which one in fifty stays, most."""
    pieces = [bytes(PIECE_BYTES) for _ in range(PIECES)]
    del pieces[::2]
    kept = pieces[::25]
    del pieces
    before = resident_bytes()
    give_back()
    assert before - resident_bytes() > PIECES * PIECE_BYTES // 4
    assert len(kept) == PIECES // 50


def test_a_task_gives_back_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one never."""
    calls: list[None] = []
    monkeypatch.setattr(freed_memory, "give_back", lambda: calls.append(None))
    freed = FreedMemory()
    for _ in range(31):
        freed.note(EVERY_BYTES // 8)
    assert len(calls) == 3
    FreedMemory().note(EVERY_BYTES - 1)
    assert len(calls) == 3
