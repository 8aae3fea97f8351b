"""Where the SSTs of a copy are, for a restore or a drill."""

from tussock.meta.retention.destination.destination import Destination, FoundCopy
from tussock.meta.retention.destination.part_bucket import PartBucket
from tussock.meta.retention.sst_copies import Copy

__all__ = ["ssts_of_copy"]


def ssts_of_copy(destination: Destination, found: FoundCopy) -> list[Copy]:
    """Every SST of a copy, with the part that it lies in and the digest that it must have."""
    places = found.manifest.places
    buckets = {part: PartBucket(destination.bucket, part) for part, _ in places.values()}
    return [Copy(sst, buckets[places[sst.id][0]], places[sst.id][1]) for sst in found.manifest.version.ssts()]
