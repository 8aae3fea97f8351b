"""At each committed epoch the tables of a flow's streams belong together."""

from pathlib import Path

import pyarrow as pa

from tussock.compute import changelog as cl
from tussock.statestore import connect

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def test_a_commit_has_the_same_transactions_of_all_streams(tmp_path: Path) -> None:
    """Two sources and what is behind them, while pushes come without a pause and commits come every 20 ms."""
    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        first = cl.Stream(store, "first", schema=SCHEMA, key=["k"])
        middle = cl.Stream(store, "middle", schema=SCHEMA, key=["k"], inputs=[first])
        second = cl.Stream(store, "second", schema=SCHEMA, key=["k"])
        last = cl.Stream(store, "last", schema=SCHEMA, key=["k"], inputs=[middle, second])
        with cl.Flow(store, [first, middle, second, last], checkpoint=0.02) as flow:
            began = store.committed_epoch
            for at in range(3000):
                first.push([cl.upsert(k=0, v=at)])
                answer = second.push([cl.upsert(k=1, v=at)])
                if at % 300 == 0:
                    answer.result(10)
            flow.drain(60)
        seen = set()
        for epoch in store.table("last").change_epochs(began):
            values = [(store.table(name).get(key, epoch) or {"v": None})["v"] for name, key in PLACES]
            assert values[0] == values[1] == values[2], f"epoch {epoch}: {values}"
            assert values[3] == values[4], f"epoch {epoch}: {values}"
            seen.add(values[0])
        assert len(seen) > 5


PLACES = (("first", 0), ("middle", 0), ("last", 0), ("second", 1), ("last", 1))
