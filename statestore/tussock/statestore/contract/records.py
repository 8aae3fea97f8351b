"""What the store knows about its tables and SSTs: the plain records that the rooms pass to each other.

A `Version` (room `meta`) is made of these; the readers and writers here need only them. All are immutable and
serialise as MessagePack maps by field name, as `docs/formats.md` lists them: a field may be added with a default,
none may change its meaning.
"""

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from tussock.statestore.contract.chunked import Chunked

__all__ = [
    "GoneTable",
    "Run",
    "SstInfo",
    "TableChange",
    "TableLevels",
    "TableSpec",
    "TableState",
    "UploadedRun",
    "data_object",
    "data_path",
    "entry_path",
    "meta_object",
    "meta_path",
    "object_sizes",
    "pack",
    "shown_schema",
    "sst_text",
    "stored_bytes",
]


class SstInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One SST as the version names it.

    It is `sst/<id>.data` and `sst/<id>.meta`, or the first alone if it is small, or a part of the log entry by which it
    was committed.
    """

    id: str
    """32 lower-case hex digits: 48 bits of milliseconds at upload, 80 random bits; ids sort by time."""
    smallest: bytes
    """Smallest user key."""
    largest: bytes
    """Largest user key, inclusive."""
    rows: int
    """Rows, every version and delete counted."""
    deletes: int
    """Rows that are deletes."""
    data_bytes: int
    meta_bytes: int
    epoch: int
    """The epoch of every row where the rows carry none (a commit's SST); 0 where they do."""
    min_epoch: int
    max_epoch: int
    meta_in_data: bool = False
    """The meta is no separate object but follows the blocks, at `data_bytes` from where they begin."""
    source: str = ""
    """URL of the store in whose bucket its objects are, for an SST that a clone took over; empty: this store's own."""
    entry: int = 0
    """Sequence of the log entry whose object holds the SST, blocks and meta; 0: it is a separate object."""
    offset: int = 0
    """Where it begins in the object of that entry."""
    until: int = 0
    """Of an SST of history: no reader at this epoch or a later one sees a row of it. 0: it is in the live tree."""
    expires_ms: int = 0
    """Of an SST of a table whose rows expire by a column: from when on all of its rows are. 0: not known, or never."""
    head_bytes: int = 0
    """Of a meta whose filter lies apart: how many bytes come before the filter. 0: the meta is fetched whole."""
    filter_parts: int = 0
    """In how many parts that filter lies, all of one size, a power of two; the rest of `meta_bytes` is theirs."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One sorted run of L0: SSTs with ascending, non-overlapping key ranges."""

    ssts: tuple[SstInfo, ...]


class UploadedRun(Run, frozen=True, kw_only=True, omit_defaults=True):
    """A sorted run as `upload` returns it: with the table that it is for, so that no other one takes it."""

    table_id: int = 0
    """0: not told, in what a release before this one uploaded."""
    table: str = ""
    """Its name, for messages."""


class TableSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A table as the catalog holds it."""

    id: int
    name: str
    schema: bytes | None = None
    """A typed table's Arrow schema as an IPC message; `None` for a raw table of `{key, value}`."""
    primary_key: tuple[str, ...] = ()
    distribution_key: tuple[str, ...] = ()
    vnodes: int = 0
    """Virtual nodes that keys are spread over, a power of two up to 256; 0: keys have no vnode prefix (raw)."""
    block_bytes: int = 64 << 10
    """Size of a block before compression, approximately."""
    compression: str = "lz4"
    """`none`, `lz4` or `zstd`."""
    retention_ms: int | None = None
    """How long its epochs stay readable without a pin; `None`: as long as the store's."""
    ttl_ms: int | None = None
    """How long its rows live; `None`: until they are deleted."""
    ttl_column: str | None = None
    """The value column, of a timestamp type, from whose time that counts; `None`: from the time in a row's epoch."""

    def arrow_schema(self) -> pa.Schema:
        """The schema of the rows that users see; `{key: binary, value: binary}` for a raw table."""
        if self.schema is None:
            return pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])
        return shown_schema(pa.ipc.read_schema(pa.py_buffer(self.schema)))


class TableChange(msgspec.Struct, frozen=True, kw_only=True):
    """What `alter_table` is to change of a table."""

    add: pa.Schema = pa.schema([])
    """Columns that a typed table gets."""
    widen: pa.Schema = pa.schema([])
    """Value columns of a typed table with their new types."""
    retention_ms: int | None = None
    """Its retention from now on; `None` leaves it as it is."""
    store_retention: bool = False
    """From now on it has the store's retention."""


def shown_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries as they are read: unordered, with 32-bit indices.

    Rows hold the values alone, so a batch has its own dictionary, in no order, of up to as many values as rows.
    """
    if not any(pa.types.is_dictionary(field.type) for field in schema):
        return schema
    fields = [
        field.with_type(pa.dictionary(pa.int32(), field.type.value_type))
        if pa.types.is_dictionary(field.type)
        else field
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)


class TableLevels(msgspec.Struct, frozen=True, kw_only=True):
    """The sorted runs of one table: the live tree, and history.

    The runs of the live tree come from new to old: for one key a newer run always has the larger epochs. A reader of
    the present needs no others. Each row of history says for which epochs it is, whatever run it is in.
    """

    l0: tuple[Run, ...] = ()
    """Newest first."""
    levels: tuple[Sequence[SstInfo], ...] = ()
    """L1 first, then deeper and older; each level one sorted run, `Chunked` since a compaction changes a bit of it."""
    history: tuple[Run, ...] = ()
    """What compaction took out of the live tree, and a reader at an older epoch may ask for; last taken first."""

    def __post_init__(self) -> None:
        if not all(type(level) is Chunked for level in self.levels):
            # Given by a caller as tuples, or decoded as lists.
            msgspec.structs.force_setattr(self, "levels", tuple(map(Chunked.of, self.levels)))

    def runs(self) -> list[Sequence[SstInfo]]:
        """All sorted runs of the live tree that are not empty, newest first."""
        return [*(run.ssts for run in self.l0), *(level for level in self.levels if level)]

    def live_ssts(self) -> list[SstInfo]:
        """The SSTs of the live tree, newest run first."""
        return [sst for run in self.runs() for sst in run]

    def history_ssts(self) -> list[SstInfo]:
        """The SSTs of history."""
        return [sst for run in self.history for sst in run.ssts]

    def ssts(self) -> list[SstInfo]:
        """All SSTs: those of the live tree, newest run first, then those of history."""
        return [*self.live_ssts(), *self.history_ssts()]


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """A table in one version: what it is and where its rows are."""

    spec: TableSpec
    levels: TableLevels = TableLevels()
    last_epoch: int = 0
    """The newest epoch that wrote to the table; what a conditional commit is checked against."""
    created: tuple[int, int] | msgspec.UnsetType = msgspec.UNSET
    """When it was: the newest committed epoch, and the log entry that created it. Older snapshots have no such table.
    Unset: before this was noted, or before the store began, by a restore or a clone."""
    own_epochs: tuple[int, int] | msgspec.UnsetType = msgspec.UNSET
    """Its own safe epoch and compacted epoch, which it has once it was given a retention. Unset: the store's."""

    @property
    def created_epoch(self) -> int:
        """The newest committed epoch when the table was created; 0: not noted."""
        return self.created[0] if self.created else 0

    @property
    def created_seq(self) -> int:
        """The log entry that created it; 0: not noted."""
        return self.created[1] if self.created else 0


class GoneTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was dropped, as it was then: kept until no pin needs it."""

    state: TableState
    dropped_epoch: int
    """The newest committed epoch when it was dropped: pins up to this one may need it."""
    dropped_seq: int
    """The log entry that dropped it."""
    dropped_ms: int


def data_path(sst_id: str) -> str:
    """Path of an SST's blocks in the bucket, where it is a separate object."""
    return f"sst/{sst_id}.data"


def meta_path(sst_id: str) -> str:
    """Path of an SST's block index, bloom filter and statistics in the bucket, where they are not in `.data`."""
    return f"sst/{sst_id}.meta"


def entry_path(seq: int) -> str:
    """Path of the log entry with that sequence; from 1 on."""
    return f"log/{seq:020d}.delta"


def data_object(sst: SstInfo) -> str:
    """Path of the object that holds the SST's blocks, from `sst.offset` on."""
    return entry_path(sst.entry) if sst.entry else data_path(sst.id)


def meta_object(sst: SstInfo) -> str:
    """Path of the object that holds the SST's meta."""
    return data_object(sst) if sst.meta_in_data else meta_path(sst.id)


def sst_text(path: str, sst: SstInfo) -> str:
    """The path, or the URL of an object that has the SST in it, for messages: with the SST where others are there."""
    return f"{path} from offset {sst.offset}, SST {sst.id}" if sst.entry else path


def stored_bytes(sst: SstInfo) -> int:
    """What the SST takes up in the bucket."""
    return sst.data_bytes + sst.meta_bytes


def object_sizes(sst: SstInfo) -> dict[str, int]:
    """The SST's own objects, the path of each and its bytes; none if it lies in a log entry."""
    if sst.entry:
        return {}
    if sst.meta_in_data:
        return {data_path(sst.id): sst.data_bytes + sst.meta_bytes}
    return {data_path(sst.id): sst.data_bytes, meta_path(sst.id): sst.meta_bytes}


def pack(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Sorted runs, newest first, as fewer ones: a run joins the run before it if no key ranges overlap.

    Joining changes no reader's answer: rows of runs that do not overlap hide nothing of each other.
    """
    packed: list[list[SstInfo]] = []
    for run in runs:
        if not run.ssts:
            continue
        if packed and not any(_overlap(old, new) for old in packed[-1] for new in run.ssts):
            packed[-1].extend(run.ssts)
        else:
            packed.append(list(run.ssts))
    return tuple(Run(ssts=tuple(sorted(ssts, key=lambda sst: sst.smallest))) for ssts in packed)


def _overlap(left: SstInfo, right: SstInfo) -> bool:
    return left.smallest <= right.largest and right.smallest <= left.largest
