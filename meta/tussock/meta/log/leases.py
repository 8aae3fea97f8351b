"""The objects below `leader/`: of the leader, and of its followers."""

import msgspec
from msgspec import structs

from tussock.meta.log.format import LEASE_MAGIC, decode_record, encode_record

__all__ = ["LeaseRecord", "decode_lease", "encode_lease"]


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What `leader/<term>` says, or `leader/standby-<16 hex>` of a follower; only its holder overwrites it."""

    term: int
    """0 of a follower."""
    holder: str
    """Host and process, with a random end: no two processes ever have the same."""
    address: str
    """Where clients find the holder."""
    lease_ms: int
    """If the object does not change for this long, its holder has stopped leading, or following."""
    renewals: int = 0
    """Counted up each time, so that a renewal is a change."""
    resigned: bool = False
    """The holder has stopped leading already."""
    successor: str = ""
    """With `resigned`: the address of the replica that is to lead next; the others wait for a lease. Not written if it
    is empty; releases that do not know it take over at once."""


_DECODER = msgspec.msgpack.Decoder(LeaseRecord)


def encode_lease(lease: LeaseRecord) -> bytes:
    """The bytes of a lease; its sequence field is the term."""
    fields = {name: value for name, value in structs.asdict(lease).items() if name != "successor" or value}
    return encode_record(LEASE_MAGIC, lease.term, fields)


def decode_lease(path: str, term: int, data: bytes) -> LeaseRecord:
    """The lease in `data`; `CorruptLog` if it is not the intact one of `term`."""
    return decode_record(_DECODER, path, LEASE_MAGIC, term, data)
