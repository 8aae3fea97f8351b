"""How many tables and writers a store keeps: every version has them all, in memory and in each base version.

Asked where one is to be added, or a table gets other columns, by a service and by embedded processes alike. What is
there already stays usable.
"""

from collections.abc import Iterable

from tussock.meta.version.version import Version
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import LimitReached

__all__ = [
    "CATALOG_BYTES_MAX",
    "TABLES_MAX",
    "WRITERS_MAX",
    "check_altered_table",
    "check_new_table",
    "check_new_writer",
    "idle_writers",
    "unused_writers",
]

TABLES_MAX = 10_000
"""With those that were dropped and that vacuum has not forgotten."""
CATALOG_BYTES_MAX = 32 << 20
"""Of the schemas of all tables."""
WRITERS_MAX = 10_000


def check_new_table(version: Version, spec: TableSpec, tables_max: int = TABLES_MAX) -> None:
    """Raise `LimitReached` if there is no room for a table."""
    specs = _specs(version)
    if len(specs) >= tables_max:
        raise LimitReached(
            f"table {spec.name!r} was not created: the store has {len(specs)} tables, with those that were dropped "
            f"lately, and keeps {tables_max}; drop some, and let vacuum run",
            tables_max,
        )
    _check_bytes([*specs, spec], f"table {spec.name!r} was not created")


def check_altered_table(version: Version, spec: TableSpec) -> None:
    """Raise `LimitReached` if there is no room for the new schema of a table that is there."""
    others = [one for one in _specs(version) if one.id != spec.id]
    _check_bytes([*others, spec], f"table {spec.name!r} was not altered")


def _specs(version: Version) -> list[TableSpec]:
    """Those of all tables, with the dropped ones that are not forgotten."""
    return [*(state.spec for state in version.tables.values()), *(gone.state.spec for gone in version.gone.values())]


def _check_bytes(specs: Iterable[TableSpec], refused: str) -> None:
    size = sum(len(one.schema or b"") for one in specs)
    if size > CATALOG_BYTES_MAX:
        raise LimitReached(
            f"{refused}: the schemas of all tables would have {size} bytes, and a store keeps {CATALOG_BYTES_MAX}; "
            "drop some tables, and let vacuum run",
            CATALOG_BYTES_MAX,
        )


def check_new_writer(version: Version, writer: str | None, by: str = "") -> bool:
    """Whether this is a name that the store does not know; `LimitReached` if there is no room for one.

    `by` is the identity that brings it, empty of an embedded process: one may bring as many as are free then, so that
    others find room: alone 5,000.
    """
    if writer is None or version.knows_writer(writer):
        return False
    known = len(version.ledger.keys() | version.generations.keys())
    own = sum(1 for origin in version.names.origins.values() if origin.by == by) if by else 0
    free = WRITERS_MAX - known
    if own < free:
        return True
    whose = f", {own} of them brought by {by!r}, which may bring as many as are free" if by and free > 0 else ""
    raise LimitReached(
        f"writer {writer[:64]!r} is new, and the store remembers {known} writers and keeps {WRITERS_MAX}{whose}: give "
        "a stream one name, and not one for each run; `tussock repair writers` forgets names that nobody uses",
        WRITERS_MAX,
        own,
    )


def idle_writers(version: Version, names: Iterable[str], before_ms: int) -> list[str]:
    """Those of the names that were neither brought nor have committed since that time (Unix milliseconds), in order.

    Times of commits come from the timeline, which is thinned: a writer may be taken for active that is not any more.
    """
    edge, origins = version.retention_epoch(before_ms, 0), version.names.origins

    def is_idle(name: str) -> bool:
        batches, origin = version.ledger.get(name), origins.get(name)
        is_new = origin is not None and origin.opened_ms >= before_ms
        return version.knows_writer(name) and not is_new and not (batches and batches[-1][1] > edge)

    return [name for name in names if is_idle(name)]


def unused_writers(version: Version, before_ms: int) -> tuple[str, ...]:
    """Names that were opened before that time (Unix milliseconds) and have never committed."""
    opened = version.names.origins.items()
    return tuple(name for name, one in opened if 0 < one.opened_ms < before_ms and name not in version.ledger)
