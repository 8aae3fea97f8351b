"""What the status of a resource says, without what no plan could use: users and other programs may write it, too.

The API server checks the types of fields, but takes times that do not exist and lists that lack a condition. Such a
value counts as absent, as in a status that was lost, so the next pass finds the truth anew.
"""

from collections.abc import Mapping
from typing import Any

from tussock.operator.planning.words.conditions import CONDITION_TYPES
from tussock.operator.planning.words.model import moment_of, stamp

__all__ = ["sound_status"]


def sound_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without unreadable times, with all others as the operator writes them; and with all conditions or none.

    Times are the fields whose names end in `Time` or are `time`, at any depth.
    """
    sound: dict[str, Any] = _sound_part(status)
    held = sound.get("conditions")
    if held is not None and {found.get("type") for found in held} != CONDITION_TYPES:
        del sound["conditions"]
    return sound


def _sound_part(part: Any) -> Any:
    if isinstance(part, list):
        return [_sound_part(entry) for entry in part]
    if not isinstance(part, Mapping):
        return part
    sound = {}
    for field, value in part.items():
        if field != "time" and not field.endswith("Time"):
            sound[field] = _sound_part(value)
        elif (moment := moment_of(value)) is not None:
            sound[field] = stamp(moment)
    return sound
