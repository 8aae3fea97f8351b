"""A folder of files as input of a stream: what a program declares."""

from dataclasses import dataclass
from typing import Literal

from tussock.compute.applications.feeds.feed import OnBad, check_on_bad
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.envelopes.rows import changes_table
from tussock.compute.changelog.feeds.file_parts import file_parts
from tussock.compute.changelog.feeds.file_source import FileSource
from tussock.statestore import InvalidOption, StateStore
from tussock.statestore.base.system import System
from tussock.statestore.buckets.opening import open_bucket

__all__ = ["FileFeed"]

SUFFIXES = {
    "json": ".jsonl",
    "debezium-json": ".jsonl",
    "canal-json": ".jsonl",
    "parquet": ".parquet",
    "arrow": ".arrow",
}
BATCH_ROWS_MAX = 1_000_000
FILE_BYTES_MAX = 64 << 30


@dataclass(frozen=True)
class FileFeed:
    """The files of a folder, in the order of their names, as they appear; a file is a transaction.

    `url`: a folder of any bucket that a store can be in. `format`: "parquet" and "arrow" (the IPC file), with the
    columns of the stream and, if they have them, `_op` and `_old`; "json", an object a line, likewise; "debezium-json"
    and "canal-json", a message a line. Only names that end with `suffix` count, by default what the format's files are
    called; no file counts, and none of a folder, with a dot in front. A file has to appear whole, under a name behind
    those of all files before it, and to stay as it is.

    A file of more than `batch_rows` rows or lines is several transactions. One of more than `file_bytes` is refused.
    """

    url: str
    format: Literal["json", "debezium-json", "canal-json", "parquet", "arrow"] = "parquet"
    suffix: str | None = None
    decimals: Literal["base64", "text"] = "base64"
    batch_rows: int = 100_000
    file_bytes: int = 1 << 30
    on_bad: OnBad = "stop"

    def __post_init__(self) -> None:
        """Check what was given; `InvalidOption`."""
        if not isinstance(self.url, str) or not self.url:
            raise InvalidOption(f"a feed of files at {self.url!r:.200}; expected the URL of a folder")
        what = "the feed of files"
        if not isinstance(self.format, str) or self.format not in SUFFIXES:
            raise InvalidOption(f"{what}: format={self.format!r:.100}; expected one of {list(SUFFIXES)}")
        if self.suffix is not None and (not isinstance(self.suffix, str) or not 1 <= len(self.suffix) <= 100):
            raise InvalidOption(f"{what}: suffix={self.suffix!r:.100}; expected the end of names, such as '.json'")
        if self.decimals not in ("base64", "text"):
            raise InvalidOption(f"{what}: decimals={self.decimals!r:.100}; expected 'base64' or 'text'")
        for name, count, most in (
            ("batch_rows", self.batch_rows, BATCH_ROWS_MAX),
            ("file_bytes", self.file_bytes, FILE_BYTES_MAX),
        ):
            if type(count) is not int or not 1 <= count <= most:
                raise InvalidOption(f"{what}: {name}={count!r:.100}; expected 1 to {most:,}")
        check_on_bad(self.on_bad, what)

    def open_changes(self, store: StateStore, system: System, what: str, shape: StreamShape) -> FileSource:  # noqa: ARG002 - other feeds' need
        """The source; `InvalidOption` for a URL that is none."""
        bucket = open_bucket(self.url, system=system, make_folder=False, any_names=True)
        parts = file_parts(shape, self.format, what, self.batch_rows, self.decimals)
        suffix = self.suffix or SUFFIXES[self.format]
        return FileSource(
            bucket, suffix, parts, changes_table(shape, []).schema, system, what, self.on_bad, self.file_bytes
        )
