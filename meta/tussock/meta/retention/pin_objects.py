"""The objects of pins in a bucket, of all holders; `pins.py` says what they are."""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from tussock.meta.log.format import decode_pin
from tussock.meta.log.objects import read_object
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore
from tussock.statestore.errors import CorruptLog, ObjectNotFound

__all__ = ["PIN_ID", "live_pins", "pin_objects", "smallest_live_pin"]

UNRENEWED_LIFE_MS = 24 * 3600 * 1000
"""No pin holds its epoch for longer than a day after it was last written, by the bucket's clock. That is for damaged
ones, and for those by a clock that was years ahead: keeping too much loses nothing."""
PIN_ID = re.compile(r"[0-9]{20}-[0-9a-f]{16}", re.ASCII)


def pin_objects(bucket: ObjectStore) -> Iterator[tuple[PinInfo, ObjectInfo]]:
    """All pins in the bucket, live or not, by epoch ascending; each is fetched as it is asked for."""
    for info in bucket.list("pins/"):
        pin_id = info.path.removeprefix("pins/")
        if not PIN_ID.fullmatch(pin_id):
            continue
        digits = pin_id.partition("-")[0]
        try:
            pin = decode_pin(info.path, read_object(bucket, info.path))
            yield replace(pin, expires_ms=min(pin.expires_ms, info.modified_ms + UNRENEWED_LIFE_MS)), info
        except ObjectNotFound:
            continue
        except CorruptLog:
            yield (
                PinInfo(
                    id=pin_id,
                    epoch=int(digits),
                    owner="unreadable",
                    created_ms=info.modified_ms,
                    expires_ms=info.modified_ms + UNRENEWED_LIFE_MS,
                ),
                info,
            )


def live_pins(bucket: ObjectStore, now_ms: int, skew_ms: int) -> Iterator[PinInfo]:
    """The pins that expired no more than `skew_ms` ago, by epoch ascending; reads on only as far as it is asked."""
    return (pin for pin, _ in pin_objects(bucket) if now_ms <= pin.expires_ms + skew_ms)


def smallest_live_pin(bucket: ObjectStore, now_ms: int, skew_ms: int, *, but: str = "") -> int | None:
    """The smallest pinned epoch, or `None`; one LIST and, as a rule, one GET. `but` is the id of a pin to leave out."""
    return next((pin.epoch for pin in live_pins(bucket, now_ms, skew_ms) if pin.id != but), None)
