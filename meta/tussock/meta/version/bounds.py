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


def check_new_writer(version: Version, writer: str | None) -> None:
    """Raise `LimitReached` if this is a name that the store does not know, and there is no room for one."""
    if writer is None or writer in version.ledger or writer in version.generations:
        return
    known = len(version.ledger.keys() | version.generations.keys())
    if known >= WRITERS_MAX:
        raise LimitReached(
            f"writer {writer[:64]!r} is new, and the store remembers {known} writers and keeps {WRITERS_MAX}: give a "
            "stream one name, and not one for each run",
            WRITERS_MAX,
        )
