"""Files as input and output of streams: in the order of their names, each once, and none that changes unseen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.changelog.fed_files import rows_in_order, write_lines
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore

ITEM = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def items(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "v": number * 10} for number in numbers]


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows)


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_batches([batch_of(rows)]), path)


def write_arrow(path: Path, rows: list[dict[str, Any]]) -> None:
    with pa.ipc.new_file(path, batch_of(rows).schema) as writer:
        writer.write(batch_of(rows))


def flow_of(store: StateStore, folder: Path, **options: Any) -> tuple[cl.Stream, cl.Flow]:
    stream = cl.Stream(store, "fed", schema=ITEM, key=["id"])
    flow = cl.Flow(store, [stream], checkpoint=options.pop("checkpoint", 1.0))
    name = options.pop("name", None)
    flow.feed(stream, cl.FileFeed(folder.as_uri(), **options), name=name)
    return stream, flow


def taken(stream: cl.Stream) -> list[list[int]]:
    return [[one["id"] for one in each] for each in stream.in_history()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "in"
    found.mkdir()
    return found


@pytest.mark.parametrize(
    ("kind", "write", "suffix"),
    [("parquet", write_parquet, ".parquet"), ("arrow", write_arrow, ".arrow")],
)
def test_each_file_is_a_transaction_in_the_order_of_names(
    store: StateStore, folder: Path, kind: Any, write: Callable[[Path, Any], None], suffix: str
) -> None:
    """Also those that appear later, and none twice; of other names none; a column that the stream has not is left."""
    write(folder / f"b{suffix}", [{**one, "more": 1} for one in items(2, 3)])
    write(folder / f"a{suffix}", [{**one, "_op": "INSERT"} for one in items(1)])
    (folder / "notes.txt").write_text("none")
    stream, flow = flow_of(store, folder, format=kind)
    with flow:
        flow.drain(60)
        assert taken(stream) == [[1], [2, 3]]
        gone = [{"id": 2, "v": None, "_op": "DELETE", "_old": False}]
        block = [
            {"id": 7, "v": 1, "_op": "UPDATE_BLOCK", "_old": False},
            {"id": 3, "v": 30, "_op": "DELETE", "_old": True},
        ]
        write(folder / f"c{suffix}", gone + block)
        eventually(lambda: len(stream.in_history()) == 3)
    assert rows_in_order(store, "fed") == [{"id": 1, "v": 10}, {"id": 7, "v": 1}]
    with flow:
        flow.drain(60)
        assert flow.stats()["feeds"]["fed"]["batches"] == 0


@pytest.mark.parametrize("kind", ["json", "parquet", "arrow"])
def test_a_large_file_is_several_transactions_and_goes_on_in_its_middle(
    store: StateStore, folder: Path, kind: Any
) -> None:
    """A flow that is replaced after some of them takes the others, of the same rows."""
    rows = items(*range(10))
    if kind == "json":
        write_lines(folder, "a", rows)
    else:
        {"parquet": write_parquet, "arrow": write_arrow}[kind](folder / f"a.{kind}", rows)
    stream, flow = flow_of(store, folder, format=kind, batch_rows=4, checkpoint=3600)
    flow.start()
    eventually(lambda: len(stream.in_history()) == 3)
    # The next runner replays what no commit has: it reads the parts again.
    second, successor = flow_of(store, folder, format=kind, batch_rows=4)
    with successor:
        successor.drain(60)
        assert taken(second) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert successor.stats()["feeds"]["fed"]["batches"] == 0
    with pytest.raises(cl.ApplicationFenced):
        flow.stop()
    assert rows_in_order(store, "fed") == rows


def test_a_block_is_not_split(store: StateStore, folder: Path) -> None:
    first = [{"id": 1, "v": 1, "_op": "INSERT", "_old": False}]
    block = [{"id": 2, "v": 2, "_op": "UPDATE_BLOCK", "_old": False}, {"id": 1, "v": 1, "_op": "DELETE", "_old": True}]
    write_parquet(folder / "a.parquet", first + block + [{"id": 3, "v": 3, "_op": "INSERT", "_old": False}])
    stream, flow = flow_of(store, folder, batch_rows=2)
    with flow:
        flow.drain(60)
        assert taken(stream) == [[1, 2], [3]]
    assert [row["id"] for row in rows_in_order(store, "fed")] == [2, 3]


def test_empty_files_are_passed(store: StateStore, folder: Path) -> None:
    write_lines(folder, "a", [])
    write_lines(folder, "b", [b"", b"", {"id": 1, "v": 10}, b""])
    stream, flow = flow_of(store, folder, format="json")
    with flow:
        flow.drain(60)
        assert taken(stream) == [[1]]
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    pq.write_table(schema.empty_table(), folder / "a.parquet")
    write_parquet(folder / "b.parquet", items(2))
    stream, flow = flow_of(store, folder, name="other")
    with flow:
        flow.drain(60)
        assert taken(stream)[-1] == [2]


def test_a_file_that_changed_after_it_was_read_is_told(store: StateStore, folder: Path) -> None:
    """What it had is in the streams; what it has now never was."""
    write_lines(folder, "a", items(1))
    flow = flow_of(store, folder, format="json")[1]
    with flow:
        flow.drain(60)
    write_lines(folder, "a", items(1, 2))
    with pytest.raises(cl.InputLost, match=r"file 'a\.jsonl' was changed after it was read \(size or time"):
        flow.start()


@pytest.mark.parametrize("how", ["changed", "gone", "split otherwise"])
def test_a_replay_of_another_file_stops(store: StateStore, folder: Path, how: str) -> None:
    """What the log has and no commit cannot be done again without the file."""
    write_lines(folder, "a", items(1, 2, 3))
    stream, flow = flow_of(store, folder, format="json", batch_rows=2, checkpoint=3600)
    flow.start()
    eventually(lambda: len(stream.in_history()) == 2)
    if how == "changed":
        write_lines(folder, "a", items(1, 2, 4))
    elif how == "gone":
        (folder / "a.jsonl").unlink()
    rows = 3 if how == "split otherwise" else 2
    second = flow_of(store, folder, format="json", batch_rows=rows)[1]
    kind, text = {
        "changed": (cl.InputLost, "its bytes are others"),
        "gone": (cl.InputLost, r"file 'a\.jsonl' is gone"),
        "split otherwise": (InvalidOption, "start with the former batch_rows="),
    }[how]
    with pytest.raises(kind, match=text):
        second.start()
    with pytest.raises(cl.ApplicationFenced):
        flow.stop()


@pytest.mark.parametrize(
    ("name", "data", "cause"),
    [
        ("b.parquet", b"none", "ArrowInvalid"),
        ("b.parquet", b"PAR1" + b"\xff" * 100 + b"PAR1", ""),
        ("b.arrow", b"ARROW1\0\0" + b"\xff" * 100, ""),
    ],
)
def test_a_file_that_is_none_is_a_dead_letter(
    store: StateStore, folder: Path, name: str, data: bytes, cause: str
) -> None:
    """And the next one goes on; or the flow stops there, and meets it again."""
    kind: Any = name.partition(".")[2]
    write: Any = {"parquet": write_parquet, "arrow": write_arrow}[kind]
    (folder / name).write_bytes(data)
    write(folder / f"c.{kind}", items(3))
    flow = flow_of(store, folder, format=kind, on_bad="skip")[1]
    with flow:
        flow.drain(60)
    assert rows_in_order(store, "fed") == items(3)
    (letter,) = rows_in_order(store, "fed.dead_letters")
    assert letter["origin"] == f"{name}:000000001"
    assert cause in letter["cause"]
    strict = flow_of(store, folder, format=kind, name="strict")[1]
    for _ in range(2):
        with pytest.raises(cl.BadInput, match=name), strict:
            strict.drain(60)


def test_rows_of_other_types_are_a_dead_letter(store: StateStore, folder: Path) -> None:
    write_parquet(folder / "a.parquet", [{"id": 1, "v": "x"}])
    write_parquet(folder / "b.parquet", [{"v": 1}])
    write_parquet(folder / "c.parquet", [{"id": 1, "v": 1, "_op": "MERGE"}])
    write_parquet(folder / "d.parquet", items(4))
    flow = flow_of(store, folder, on_bad="skip")[1]
    with flow:
        flow.drain(60)
    assert rows_in_order(store, "fed") == items(4)
    causes = [letter["cause"] for letter in rows_in_order(store, "fed.dead_letters")]
    assert "column 'v': expected int64, found string" in causes[0]
    assert "column 'id' (int64) is missing" in causes[1]
    assert "operation 'MERGE'" in causes[2]


def test_a_file_above_the_limit_is_refused(store: StateStore, folder: Path) -> None:
    write_lines(folder, "a", items(*range(100)))
    flow = flow_of(store, folder, format="json", file_bytes=1000)[1]
    with pytest.raises(cl.BadInput, match=r"file 'a\.jsonl' is larger than file_bytes=1,000 allows"), flow:
        flow.drain(60)


def test_another_source_under_the_name_of_a_feed_is_refused(store: StateStore, folder: Path) -> None:
    write_lines(folder, "a", items(1))
    flow = flow_of(store, folder, format="json")[1]
    with flow:
        flow.drain(60)
    store.create_table("orders", ITEM, primary_key=["id"])
    stream = cl.Stream(store, "fed", schema=ITEM, key=["id"])
    other = cl.Flow(store, [stream])
    other.feed(stream, cl.TableFeed("orders"))
    with pytest.raises(InvalidOption, match="has read from another kind of source under this name"):
        other.start()


# --- Output ----------------------------------------------------------------------------------------------------------


def publishing(
    store: StateStore, to: Any, *, blocks: bool = False, name: str = "s", **options: Any
) -> tuple[cl.Stream, cl.Flow]:
    stream = cl.Stream(store, name, schema=ITEM, key=["id"])
    flow = cl.Flow(store, [stream], **options)
    flow.output(stream, to, blocks=blocks)
    return stream, flow


def push(stream: cl.Stream, *records: cl.ChangeRecord) -> None:
    stream.push(records).result(30)


def written(folder: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(path.name, pq.read_table(path).to_pylist()) for path in sorted(folder.glob("*.parquet"))]


@pytest.mark.parametrize("blocks", [False, True])
def test_files_have_each_transaction_once(store: StateStore, tmp_path: Path, blocks: bool) -> None:
    """Named by their first one; a transaction without rows is in none. With blocks an update is two rows."""
    out = tmp_path / "out"
    stream, flow = publishing(store, cl.ParquetFiles(out.as_uri(), transactions=2), blocks=blocks)
    with flow:
        push(stream, cl.insert(id=1, v=1), cl.insert(id=2, v=2))
        push(stream, cl.upsert(id=1, v=1))
        push(stream, cl.update(id=1, v=5))
        push(stream, cl.delete(id=2))
        flow.drain(60)
        shown = flow.stats()["outputs"]["s"]
        assert (shown["sent"], shown["lag_rows"]) == (shown["sequence"], 0)
    with flow:
        flow.drain(60)
    own = ["_sequence", "_position", "_op", *(["_old"] if blocks else []), "_time"]
    assert next(pq.read_schema(path).names for path in out.glob("*.parquet")) == [*own, *ITEM.names]
    found = [
        (one["_sequence"], one["_position"], one["_op"], one["id"], one["v"])
        for _, rows in written(out)
        for one in rows
    ]
    assert found == [
        (1, 0, "INSERT", 1, 1),
        (1, 1, "INSERT", 2, 2),
        *([(3, 0, "UPDATE_BLOCK", 1, 5), (3, 1, "DELETE", 1, 1)] if blocks else [(3, 0, "UPDATE", 1, 5)]),
        (4, 0, "DELETE", 2, 2),
    ]
    assert all(int(name[:20]) == rows[0]["_sequence"] for name, rows in written(out))


@pytest.mark.parametrize("blocks", [False, True])
def test_what_flows_write_flows_read(store: StateStore, tmp_path: Path, blocks: bool) -> None:
    """The same table, updates and deletions included."""
    out = tmp_path / "out"
    stream, flow = publishing(store, cl.ParquetFiles(out.as_uri(), transactions=3), blocks=blocks)
    with flow:
        for number in range(20):
            push(stream, cl.upsert(id=number % 7, v=number), cl.safedelete(id=(number * 3) % 7))
        flow.drain(60)
    second, back = flow_of(store, out)
    with back:
        back.drain(60)
        assert len(second.in_history()) == len(written(out))
    assert rows_in_order(store, "fed") == rows_in_order(store, "s")


def test_a_folder_that_has_files_of_another_output_is_refused(store: StateStore, tmp_path: Path) -> None:
    """At the start, also where they have other names than those that would be written."""
    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    write_parquet(out / f"{1:020d}.parquet", items(1))
    with pytest.raises(cl.OutputLost, match=r"is there, and is none of such an output \(it does not say of which"):
        publishing(store, cl.ParquetFiles(out.as_uri()))[1].start()
    stream, flow = publishing(store, cl.ParquetFiles(other.as_uri()), name="first")
    with flow:
        push(stream)
        push(stream, cl.insert(id=1, v=1))
        flow.drain(60)
    assert [name for name, _ in written(other)] == [f"{2:020d}.parquet"]
    with pytest.raises(cl.OutputLost, match="is of another output"):
        publishing(store, cl.ParquetFiles(other.as_uri()), name="second")[1].start()
    with flow:
        flow.drain(60)
