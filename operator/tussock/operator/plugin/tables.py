"""The plugin's output, as pure functions of the objects' statuses."""

from collections.abc import Iterable, Sequence

from tussock.operator.planning.words.model import Manifest
from tussock.operator.resources.common import store_place

__all__ = ["epochs_text", "status_text"]

_EMPTY = "-"


def status_text(stores: Sequence[Manifest], parts: Iterable[Manifest]) -> str:
    """A line for each store and, below it, everything that belongs to it, of all kinds."""
    found, others = [], list(parts)
    for store in sorted(stores, key=_name):
        found.append(_status_row(store))
        found += [_status_row(part) for part in others if store_place(part) == store_place(store)]
    return _grid(("KIND", "NAME", "READY", "REASON", "PODS", "COMMITTED", "MESSAGE"), found)


def epochs_text(store: Manifest, parts: Sequence[Manifest]) -> str:
    """The newest epoch of a store, those that its jobs have committed, and those in its backups."""
    status = store.get("status") or {}
    rows = [("StateStore", _name(store), *_cells(status, "committedEpoch", "committedTime"))]
    for part in parts:
        about = part.get("status") or {}
        if part["kind"] == "Compute":
            rows.append(("Compute", _name(part), *_cells(about, "committedEpoch", "committedTime")))
        if part["kind"] == "StateStoreBackup":
            rows += [("Backup", found["name"], *_cells(found, "epoch", "time")) for found in about.get("backups", ())]
    return _grid(("WHAT", "NAME", "EPOCH", "SINCE"), rows)


def _status_row(body: Manifest) -> tuple[str, ...]:
    status = body.get("status") or {}
    ready: Manifest = next((found for found in status.get("conditions", ()) if found["type"] == "Ready"), {})
    pods = f"{status.get('readyReplicas', 0)}/{status['replicas']}" if "replicas" in status else _EMPTY
    (when,) = _cells(status, "lastBackupTime" if body["kind"] == "StateStoreBackup" else "committedTime")
    message = ready.get("message", "no operator has reported on it yet; check that one runs")
    leaving = body["metadata"].get("deletionTimestamp")
    if leaving and ready.get("reason") not in ("Deleting", "Draining", "DeletionGaveUp"):
        # The status is outdated if no operator handles the deletion.
        message = f"It waits since {leaving} for an operator to delete it; if there is none: kubectl tussock release."
        ready = {"status": "False", "reason": "Deleting"}
    kind = body["kind"] if body["kind"] == "StateStore" else f"  {body['kind']}"
    return kind, _name(body), *_cells(ready, "status", "reason"), pods, when, message


def _cells(body: Manifest, *fields: str) -> tuple[str, ...]:
    return tuple(str(body.get(field, _EMPTY)) for field in fields)


def _name(body: Manifest) -> str:
    return str(body["metadata"]["name"])


def _grid(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = ("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"{line.rstrip()}\n" for line in padded)
