"""Losses that a repair was allowed to make, in words and as JSON: for `tussock repair sst`, `check` and `version`."""

from collections.abc import Iterable, Mapping
from typing import Any

from tussock.cli.output import bytes_text, epoch_text, grid, iso_ms, number, plural
from tussock.cli.values import as_text
from tussock.statestore.contract.losses import AcceptedLoss, LostRange
from tussock.statestore.contract.records import TableSpec, TableState
from tussock.statestore.keys.encoding import KeyEncoder

__all__ = ["epochs_text", "key_text", "loss_document", "losses_grid", "lost_text", "range_text"]

KEY_CHARACTERS_MAX = 60


def loss_document(loss: AcceptedLoss, tables: Mapping[int, TableState]) -> dict[str, Any]:
    """A loss as JSON; one that nobody has agreed to yet, as a dry run finds it, has no entry, time and name.

    `tables` are those of the newest version: by its table the keys of a range are told in words, too.
    """
    spec = _spec_of(loss, tables)
    noted = loss.seq > 0
    return {
        "sst": loss.sst.id,
        "table": loss.table,
        "history": bool(loss.sst.until),
        "rows": loss.rows,
        "rows_of_sst": loss.sst.rows,
        "deletes": loss.deletes,
        "bytes": loss.bytes,
        "min_epoch": loss.min_epoch,
        "max_epoch": loss.max_epoch,
        "until_epoch": loss.sst.until or None,
        "ranges": [
            {"first": one.first, "end": one.end, "closed": one.closed, "keys": range_text(spec, one, whole=True)}
            for one in loss.ranges
        ],
        "uncovered": loss.uncovered,
        "saved": loss.saved or None,
        "seq": loss.seq if noted else None,
        "at": iso_ms(loss.at_ms) if noted else None,
        "by": loss.by if noted else None,
        "kept": not loss.discarded,
    }


def losses_grid(losses: Iterable[AcceptedLoss], tables: Mapping[int, TableState]) -> Any:
    """A row for each range of keys; `tables` are those of the newest version."""
    rows = []
    for loss in losses:
        spec = _spec_of(loss, tables)
        facts = (
            loss.table,
            f"{number(loss.rows)} of {number(loss.sst.rows)}",
            epochs_text(loss),
            "discarded" if loss.discarded else "kept",
            iso_ms(loss.at_ms),
            loss.by,
        )
        for at, one in enumerate(loss.ranges):
            cells = (loss.sst.id, *facts) if at == 0 else ("",) * (len(facts) + 1)
            rows.append((*cells, range_text(spec, one)))
    columns = ("accepted loss", "table", "rows", "epochs", "objects", "when", "by", "keys")
    return grid(*columns, right=["rows"], whole=["accepted loss"], rows=rows)


def epochs_text(loss: AcceptedLoss) -> str:
    """The epochs of the rows that were lost; of history with that from which on nobody had seen them."""
    epochs = epoch_text(loss.min_epoch)
    if loss.max_epoch != loss.min_epoch:
        epochs += f" to {epoch_text(loss.max_epoch)}"
    return f"history before {epoch_text(loss.sst.until)}, of {epochs}" if loss.sst.until else epochs


def range_text(spec: TableSpec | None, lost: LostRange, *, whole: bool = False) -> str:
    """The keys of a range: `from 17 to 42`, with virtual nodes where the table has some; long keys are cut.

    `whole`: they are not.
    """
    first, end = (key_text(spec, key, whole=whole) for key in (lost.first, lost.end))
    return f"{first} {'to' if lost.closed else 'until before'} {end}"


def key_text(spec: TableSpec | None, key: bytes, *, whole: bool = False) -> str:
    """An encoded key as people know it, shortened unless `whole`; of a table that is gone, as its bytes."""
    text = as_text(key)
    if spec is not None and spec.schema is not None:
        encoder = KeyEncoder(spec.arrow_schema(), spec.primary_key, spec.distribution_key, spec.vnodes)
        try:
            values = ", ".join(as_text(column[0]) for column in encoder.decode_few([key]))
            text = f"({values})" + (f" of vnode {int.from_bytes(key[:2], 'big')}" if spec.vnodes else "")
        except ValueError:
            pass
    return text if whole or len(text) <= KEY_CHARACTERS_MAX else text[: KEY_CHARACTERS_MAX - 1] + "…"


def lost_text(loss: AcceptedLoss) -> str:
    """How much of an SST was lost."""
    return (
        f"{plural(loss.rows, 'row')} of {number(loss.sst.rows)}, {plural(loss.deletes, 'delete')} among them, "
        f"{bytes_text(loss.bytes)}"
    )


def _spec_of(loss: AcceptedLoss, tables: Mapping[int, TableState]) -> TableSpec | None:
    state = tables.get(loss.table_id)
    return None if state is None else state.spec
