"""Quantities of Kubernetes as numbers."""

import re
from decimal import Decimal

from tussock.operator.resources.common import InvalidResource

__all__ = ["bytes_of"]

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|m|k|M|G|T|P|E|[eE][+-]?[0-9]+)?")
_UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def bytes_of(quantity: str | float) -> int:
    """A quantity of memory (`512Mi`, `1.5G`, `1e9`, a number) in whole bytes; `InvalidResource` if it is not one."""
    found = _QUANTITY.fullmatch(str(quantity).strip())
    if found is None:
        raise InvalidResource(f"{quantity!r} is not a quantity of memory; write it like 512Mi")
    unit = found[2] or ""
    factor = _UNITS[unit] if unit in _UNITS else Decimal(f"1{unit}")
    return int(Decimal(found[1]) * factor)
