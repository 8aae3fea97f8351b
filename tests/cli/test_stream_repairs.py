"""`tussock repair stream`: a stream that the next start of its flow makes anew, or that begins anew."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from support.store.command import Tussock
from tussock.compute import changelog as cl
from tussock.statestore import connect

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def test_a_stream_is_made_anew_and_forgotten(tmp_path: Path, tussock: Tussock) -> None:
    """By the commands that the refusal names; one that cannot be says why, and changes nothing."""
    url = (tmp_path / "store").as_uri()

    def rows(least: int) -> list[int]:
        with connect(url, compaction=False) as store:
            source = cl.Stream(store, "source", schema=SCHEMA, key="k")
            with cl.Flow(store, [source, cl.filter("large", source, pc.field("v") > least)], name="f") as flow:
                if not source.snapshot()[1]:
                    source.push([cl.insert(k=k, v=k) for k in range(9)])
                flow.drain(10)
            return sorted(row["k"] for batch in store.table("large").read() for row in batch.to_pylist())

    assert rows(3) == [4, 5, 6, 7, 8]
    asked = ("repair", "stream", "f", "large", "--store", url)
    assert "makes stream 'large' anew" in tussock(*asked, "--rebuild").out
    assert rows(6) == [7, 8]
    assert tussock(*asked, "--forget", "--json").json() == {
        "flow": "f",
        "stream": "large",
        "rebuilt": False,
        "dropped": ["f.large.anew", "large"],
    }
    assert rows(5) == [6, 7, 8]
    refused = tussock("repair", "stream", "f", "nothing", "--rebuild", "--store", url)
    assert (refused.code, "has no stream 'nothing'" in refused.err) == (1, True)
    assert tussock(*asked, "--forget", "--rebuild").code == 2
