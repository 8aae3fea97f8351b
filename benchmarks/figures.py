"""What is measured and what is wanted, and how samples become a ratio: the plan that `run.py` follows, without I/O."""

import statistics
from dataclasses import dataclass, field
from typing import Any

US = "tussock"
ENGINES = {US: "Tussock", "rocksdict": "RocksDB", "slatedb": "SlateDB", "parquet": "Parquet, sorted within partitions"}

PREPARED = {
    "prepare_read": ("tussock", "rocksdict", "slatedb"),
    "prepare_runs": ("tussock", "rocksdict"),
    "prepare_distinct_runs": ("tussock", "rocksdict"),
    "prepare_large": ("tussock", "rocksdict"),
}
"""Stores made once, before all rounds, and which engines need them."""

ROWS_FACTOR = {"prepare_large": 10}
"""Stores with a multiple of the rows of the other figures."""

MIX_STORE = "prepare_read"
MIX_WANTED = 1.5
"""How many times as long as alone a read may take among others, on one open store whose rows fit into the cache."""


@dataclass(frozen=True)
class Figure:
    """One case, measured in every round with each engine in turn."""

    case: str
    title: str
    unit: str
    """`/s` or `B/s`, of what the title says."""
    engines: tuple[str, ...] = (US, "rocksdict")
    store: str | None = None
    """The prepared store that the case opens; `None`: a new empty folder."""
    changes_store: bool = False
    """Each sample gets a copy."""
    wanted: dict[str, float] = field(default_factory=dict)
    """Per peer the least ratio that is promised; a figure without any is there to be honest."""


FIGURES = (
    Figure(
        "ingest",
        "ingest + commit of unsorted rows, durable",
        "/s",
        engines=(US, "rocksdict", "slatedb"),
        wanted={"rocksdict": 2, "slatedb": 30},
    ),
    Figure("single_puts", "writes of one row each, one epoch, durable at its end", "/s"),
    Figure(
        "scan_hot",
        "full scan to Arrow, hot",
        "/s",
        engines=(US, "rocksdict", "slatedb"),
        store="prepare_read",
        wanted={"rocksdict": 1.5, "slatedb": 30},
    ),
    Figure("scan_cold", "full scan to Arrow, cold (files and caches)", "/s", store="prepare_read"),
    Figure(
        "multi_get_hot",
        "multi_get, lists of 10 k random keys, hot",
        "/s",
        store="prepare_read",
        wanted={"rocksdict": 1.5},
    ),
    Figure(
        "get_hot",
        "single get, hot",
        "/s",
        engines=(US, "rocksdict", "slatedb"),
        store="prepare_read",
        wanted={"rocksdict": 0.5, "slatedb": 8},
    ),
    Figure(
        "compact",
        "full compaction, 4 runs of the same keys",
        "B/s",
        store="prepare_runs",
        changes_store=True,
        wanted={"rocksdict": 0.7},
    ),
    Figure(
        "compact_distinct",
        "full compaction, 4 overlapping runs of distinct keys",
        "B/s",
        store="prepare_distinct_runs",
        changes_store=True,
        wanted={"rocksdict": 0.7},
    ),
    Figure("large_get", "single get among ten times the rows, hot", "/s", store="prepare_large"),
    *(
        Figure(
            f"large_multi_get_{count}",
            f"multi_get, lists of {count:,} among ten times the rows, hot",
            "/s",
            store="prepare_large",
        )
        for count in (10, 100, 1_000, 10_000)
    ),
    Figure("get_cold", "1,000 single gets, cold (files and caches)", "/s", store="prepare_read"),
    Figure("short_scan_hot", "scan of 10 rows from a random key, hot", "/s", store="prepare_read"),
    Figure("small_commits", "commits of one row, each durable", "/s"),
    Figure("small_commits_threads", "commits of one row by 16 threads, each durable", "/s"),
)

MEMORY_CASES = {
    "memory_open": "open, one get",
    "memory_scan": "full scan",
    "memory_compact": "full compaction",
}
MEMORY_ROWS_SHARES = (4, 1)
"""Memory is measured with a quarter of the rows and with all of them: it should not differ."""


@dataclass(frozen=True)
class Ratio:
    """Our rate over a peer's: of each round, where the two ran one after the other, and the median of those.

    `ours` and `theirs` are the medians of the rates themselves, in `unit`.
    """

    title: str
    unit: str
    peer: str
    ours: float
    theirs: float
    ratio: float
    lowest: float
    highest: float
    wanted: float | None

    @property
    def reached(self) -> bool | None:
        """Whether the median is what is wanted; `None` where nothing is."""
        return None if self.wanted is None else self.ratio >= self.wanted


def ratios(figure: Figure, rounds: list[dict[str, dict[str, Any]]]) -> list[Ratio]:
    """The ratios of one figure to each of its peers; `rounds`: per round the sample of each engine."""
    ours = [samples[US]["rate"] for samples in rounds]
    answers = []
    for peer in figure.engines[1:]:
        theirs = [samples[peer]["rate"] for samples in rounds]
        paired = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        answers.append(
            Ratio(
                title=figure.title,
                unit=figure.unit,
                peer=ENGINES.get(peer, peer),
                ours=statistics.median(ours),
                theirs=statistics.median(theirs),
                ratio=statistics.median(paired),
                lowest=min(paired),
                highest=max(paired),
                wanted=figure.wanted.get(peer),
            )
        )
    return answers
