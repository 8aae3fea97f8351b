"""Counting the records of a request in its bytes, as protobuf would parse them."""

import random

import pytest

from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.wire import RECORDS, Miscounted, records_in


def tables(rng: random.Random) -> list[pb.TableRuns]:
    def sst() -> pb.SstInfo:
        return pb.SstInfo(
            id="0" * rng.randrange(40), smallest=rng.randbytes(rng.randrange(300)), rows=rng.getrandbits(63)
        )

    def run() -> pb.Run:
        return pb.Run(ssts=[sst() for _ in range(rng.randrange(5))])

    return [pb.TableRuns(table_id=1, runs=[run() for _ in range(rng.randrange(4))]) for _ in range(rng.randrange(4))]


@pytest.mark.parametrize("seed", range(50))
def test_all_records_are_counted(seed: int) -> None:
    """Each table, run and SST is one, and each further field of the message and of a table."""
    made = pb.CommitRequest(epoch=seed + 1, tables=tables(random.Random(seed)), payloads={"a": b"x" * 500})
    expected = 2 + sum(2 + len(table.runs) + sum(len(run.ssts) for run in table.runs) for table in made.tables)
    data = made.SerializeToString()
    assert records_in(data, RECORDS["Commit"], expected) == expected
    with pytest.raises(Miscounted, match=f"more than {expected - 1}"):
        records_in(data, RECORDS["Commit"], expected - 1)


@pytest.mark.parametrize("seed", range(200))
def test_counting_ends_for_any_bytes(seed: int) -> None:
    """For damaged messages and noise the count is a number or an error, and always ends."""
    rng = random.Random(seed)
    data = bytearray(pb.CommitRequest(epoch=1, tables=tables(rng)).SerializeToString() or rng.randbytes(100))
    for _ in range(rng.randrange(1, 9)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    try:
        assert 0 <= records_in(bytes(data), RECORDS["Commit"], 10_000) <= len(data)
    except Miscounted:
        return
