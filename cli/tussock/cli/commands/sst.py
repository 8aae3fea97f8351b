"""`tussock sst dump`: one SST in full: its meta, its block index, its rows with their full keys."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import pyarrow as pa
import typer

from tussock.cli.options import Json, Store
from tussock.cli.output import bytes_text, emit_json, epoch_text, grid, note, number, plural, show
from tussock.cli.places import StorePlace, place_at
from tussock.cli.sst_blocks import read_blocks, read_meta, read_meta_in_entry
from tussock.cli.values import as_text, batch_rows
from tussock.meta.version.version import Version
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, TableState, data_object, data_path
from tussock.statestore.errors import CorruptSst, InvalidOption
from tussock.statestore.format.meta import LoadedMeta
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.keys.full_key import full_key
from tussock.statestore.rows.rows import Rows

__all__ = ["dump"]

ROWS_SHOWN = 20
BLOCKS_SHOWN = 50


def dump(
    sst: Annotated[str, typer.Argument(metavar="ID", help="The SST's id, or the beginning of it if only one fits.")],
    store: Store,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=0, help=f"Number of rows at most; by default {ROWS_SHOWN}, and with --json all."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one SST: its meta, its block index, and its rows with key, epoch and operation.

    With --json one document: {"id", "table", "rows", "deletes", "smallest", "largest", "data_bytes", "epoch",
    "object", "offset", "columns", "bloom_bytes", "blocks": [{offset, length, raw_length, crc, rows, deletes, min_epoch,
    max_epoch, continues, first_key}], "contents": [{key, full_key_hex, epoch, op, values}]}.
    """
    most = limit if limit is not None or as_json else ROWS_SHOWN
    with place_at(store) as place:
        sst_id = _resolve(place, sst)
        state, info = _find(place.version, sst_id)
        if info is not None and info.entry:
            meta = read_meta_in_entry(place.bucket, info)
        else:
            sizes = {found.path: found.size for found in place.bucket.list(f"sst/{sst_id}")}
            meta = read_meta(place.bucket, sst_id, sizes)
        contents = list(islice(_contents(place.bucket, meta, info, state), most))
    if as_json:
        emit_json({**_meta_document(meta, state, info), "blocks": list(_blocks(meta)), "contents": contents})
        return
    facts = _meta_document(meta, state, info)
    facts["columns"] = ", ".join(f"{name} {kind}" for name, kind in facts["columns"].items()) or "none"
    for name in ("data_bytes", "bloom_bytes"):
        facts[name] = bytes_text(facts[name])
    parts = [
        grid("SST", meta.id, rows=[(name, as_text(value)) for name, value in facts.items() if name != "id"]),
        _blocks_grid(list(islice(_blocks(meta), BLOCKS_SHOWN))),
    ]
    if contents:
        parts.append(_rows_grid(contents))
    show(*parts)
    if meta.blocks > BLOCKS_SHOWN:
        note(f"{plural(meta.blocks - BLOCKS_SHOWN, 'more block')}; --json shows all")
    if meta.rows > len(contents):
        note(f"{plural(meta.rows - len(contents), 'more row')}; --limit shows more, --json all")


def _resolve(place: StorePlace, beginning: str) -> str:
    """The one id that begins so, of SSTs in the bucket whether the version names them or not."""
    listed = {info.path.removeprefix("sst/").partition(".")[0] for info in place.bucket.list(f"sst/{beginning}")}
    found = sorted(listed | {sst.id for sst in _named(place.version) if sst.id.startswith(beginning) and sst.entry})
    if len(found) != 1:
        which = "no SST has" if not found else f"{plural(len(found), 'SST')} have"
        raise InvalidOption(f"{which} an id that begins with {beginning!r}; `tussock ssts TABLE` lists them")
    return found[0]


def _find(version: Version, sst_id: str) -> tuple[TableState | None, SstInfo | None]:
    """The table whose tree names the SST, or did until it was put aside as damaged."""
    for state in version.tables.values():
        for sst in state.levels.ssts():
            if sst.id == sst_id:
                return state, sst
    for loss in version.losses:
        if loss.sst.id == sst_id:
            return version.tables.get(loss.table_id), loss.sst
    return None, None


def _named(version: Version) -> list[SstInfo]:
    return [*version.ssts(), *version.quarantined()]


def _meta_document(meta: LoadedMeta, state: TableState | None, info: SstInfo | None) -> dict[str, Any]:
    return {
        "id": meta.id,
        "table": state.spec.name if state else None,
        "rows": meta.rows,
        "deletes": meta.deletes,
        "smallest": meta.smallest,
        "largest": meta.largest,
        "data_bytes": meta.data_bytes,
        "epoch": info.epoch or None if info else None,
        "object": data_object(info) if info else data_path(meta.id),
        "offset": info.offset if info else 0,
        "columns": {field.name: str(field.type) for field in meta.schema},
        "bloom_bytes": meta.bloom.size_bytes if meta.bloom else 0,
    }


def _blocks(meta: LoadedMeta) -> Iterator[dict[str, Any]]:
    for block in range(meta.blocks):
        yield {
            "block": block,
            "offset": int(meta.offset[block]),
            "length": int(meta.length[block]),
            "raw_length": int(meta.raw_length[block]),
            "crc": f"{meta.crc[block]:#010x}",
            "rows": int(meta.block_rows[block]),
            "deletes": int(meta.block_deletes[block]),
            "min_epoch": int(meta.min_epoch[block]),
            "max_epoch": int(meta.max_epoch[block]),
            "continues": bool(meta.continues[block]),
            "first_key": meta.first_keys[block],
        }


def _blocks_grid(blocks: list[dict[str, Any]]) -> Any:
    columns = ("block", "offset", "bytes", "raw bytes", "crc32c", "rows", "deletes", "epochs", "first key")
    rows = [
        (
            str(block["block"]),
            number(block["offset"]),
            number(block["length"]),
            number(block["raw_length"]),
            block["crc"],
            number(block["rows"]),
            number(block["deletes"]),
            f"{block['min_epoch']} to {block['max_epoch']}" if block["min_epoch"] else "of the SST",
            as_text(block["first_key"]) + (" (continued)" if block["continues"] else ""),
        )
        for block in blocks
    ]
    return grid(*columns, right=("block", "offset", "bytes", "raw bytes", "rows", "deletes"), rows=rows)


def _contents(
    bucket: ObjectStore, meta: LoadedMeta, info: SstInfo | None, state: TableState | None
) -> Iterator[dict[str, Any]]:
    """The rows, or in their place what is wrong with a block."""
    encoder = None
    if state is not None and state.spec.schema is not None:
        spec = state.spec
        encoder = KeyEncoder(spec.arrow_schema(), spec.primary_key, spec.distribution_key, spec.vnodes)
    for _, rows in read_blocks(bucket, meta, info.epoch if info else 0, info):
        if isinstance(rows, CorruptSst):
            yield {"error": str(rows)}
        else:
            yield from _row_documents(rows, meta, encoder)


def _row_documents(rows: Rows, meta: LoadedMeta, encoder: KeyEncoder | None) -> Iterator[dict[str, Any]]:
    names, columns = list(meta.schema.names), list(rows.columns)
    if encoder is not None:
        names = [*encoder.primary_key, *names]
        columns = [*encoder.decode(rows.keys, check_text=False), *columns]
    values = batch_rows(pa.record_batch(columns, names=names)) if columns else [{} for _ in range(len(rows))]
    keyed = zip(rows.keys.to_pylist(), rows.epoch_array().tolist(), rows.delete_array().tolist(), values, strict=True)
    for key, epoch, deleted, row in keyed:
        if deleted:
            # What stands in the value columns of a delete means nothing.
            row = {name: row[name] for name in encoder.primary_key} if encoder else {}
        yield {
            "key": key,
            "full_key_hex": full_key(key, epoch).hex(),
            "epoch": epoch,
            "op": "delete" if deleted else "put",
            "values": row,
        }


def _rows_grid(contents: list[dict[str, Any]]) -> Any:
    rows = [
        (
            as_text(row["key"]),
            epoch_text(row["epoch"]) if row["epoch"] else "not committed",
            row["op"],
            " ".join(f"{name}={as_text(value)}" for name, value in row["values"].items()),
        )
        if "error" not in row
        else ("DAMAGED", "", "", row["error"])
        for row in contents
    ]
    return grid("user key", "epoch", "op", "values", rows=rows)
