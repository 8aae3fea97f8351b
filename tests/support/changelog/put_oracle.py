"""What PUT does, as plainly as it can be written: on a dict, one record after the other."""

from typing import Any

from tussock.compute import changelog as cl

__all__ = ["Rows", "apply_published", "put"]

Rows = dict[Any, dict[str, Any]]


def put(rows: Rows, records: list[cl.ChangeRecord], key: str = "k") -> tuple[Rows, list[cl.ChangeRecord]] | None:
    """The rows afterwards, and what is published; `None`: the transaction is bad."""
    rows = dict(rows)
    published = []
    for one in records:
        at, old = one[key], rows.get(one[key])
        if one.op in ("DELETE", "SAFEDELETE"):
            if old is not None:
                published.append(cl.delete(rows.pop(at)))
            elif one.op == "DELETE":
                return None
        elif (old is None and one.op == "UPDATE") or (old is not None and one.op == "INSERT"):
            return None
        elif old != dict(one):
            rows[at] = dict(one)
            block = cl.ChangeRecord(cl.Op.UPDATE_BLOCK, dict(one), None if old is None else cl.delete(old))
            published.append(cl.insert(dict(one)) if old is None else block)
    return rows, published


def apply_published(rows: Rows, one: cl.StreamTransaction, key: str = "k") -> None:
    """Let a transaction change rows; raises `AssertionError` where it does not fit."""
    for record in one:
        old = rows.get(record[key])
        if record.op == "INSERT":
            assert old is None, f"{record} of a row that is there"
        elif record.op == "UPDATE_BLOCK":
            assert old == dict(record.old or {}), f"{record}, and there is {old}"
        else:
            assert (record.op, dict(record)) == ("DELETE", old), f"{record}, and there is {old}"
            del rows[record[key]]
            continue
        rows[record[key]] = dict(record)
