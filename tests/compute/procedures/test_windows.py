"""The window's state machine, against a list; and the table of its visible tuples."""

import random
from typing import Any

import pyarrow as pa
import pytest

from tussock.compute import procedures as ps
from tussock.compute.procedures.definitions import Definitions
from tussock.compute.procedures.rows import TupleShape
from tussock.compute.procedures.windows import VisibleTuples, WindowState
from tussock.statestore import connect

X = pa.schema([("x", pa.int64())])


@pytest.mark.parametrize("seed", range(60))
def test_random_insertions_equal_a_list(seed: int) -> None:
    """Tuples or batches, both rules of the first slide, savepoints that are kept or undone."""
    chance = random.Random(seed)
    definitions = Definitions("a")
    stream = definitions.add_stream("s", X)
    size = chance.choice([1, 2, 3, 7, 40])
    slide = chance.randint(1, size)
    by_batches, full = chance.random() < 0.5, chance.random() < 0.5
    rows, batches = (None, size) if by_batches else (size, None)
    window = definitions.add_window("w", stream, rows, batches, slide, "full" if full else "slide")
    state = WindowState(window)
    visible_tuples = VisibleTuples(TupleShape(X, "w"), state)
    shown: list[list[int]] = []
    waiting: list[list[int]] = []
    has_slid = False
    saved = None
    for number in range(400):
        step = chance.random()
        if step < 0.1 and saved is None:
            state.begin()
            saved = list(shown), list(waiting), has_slid
        elif step < 0.2 and saved is not None:
            if chance.random() < 0.5:
                state.undo()
                shown, waiting, has_slid = saved
            else:
                state.keep()
            saved = None
        else:
            values = [number * 10 + at for at in range(chance.randrange(3) if by_batches else 1)]
            waiting.append(values)
            needed = size if full and not has_slid else slide
            slides = len(waiting) >= needed
            if slides:
                shown, waiting, has_slid = (shown + waiting)[-size:], [], True
            assert state.insert([{"x": x} for x in values]) == slides
        if chance.random() < 0.5:
            assert visible_tuples.table()["x"].to_pylist() == [x for slot in shown for x in slot]
        assert [row["x"] for row in state.rows()] == [x for slot in shown for x in slot]
        assert [row["x"] for row in state.rows(staged=True)] == [x for slot in waiting for x in slot]


NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False), ("x", pa.float64()), ("m", pa.int64())])


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 100])
@pytest.mark.parametrize("nulls", [False, True], ids=["whole", "nulls"])
def test_rows_of_numbers_are_the_same_table_as_by_arrow(count: int, nulls: bool) -> None:
    """They go by way of their bytes, which have no nulls."""
    draw = random.Random(count)
    edges = [0, -1, (1 << 63) - 1, -(1 << 63)]
    floats = [0.0, -0.0, 1e308, float("inf"), float("-inf"), 5e-324]
    rows = [{"n": draw.choice(edges), "x": draw.choice(floats), "m": draw.randrange(1 << 40)} for _ in range(count)]
    if nulls and rows:
        draw.choice(rows)["m"] = None
    table = TupleShape(NUMBERS, "stream 's'").of_rows(rows)
    table.validate(full=True)
    assert table.schema.equals(NUMBERS)
    assert table.equals(pa.Table.from_pylist(rows, schema=NUMBERS))


@pytest.mark.parametrize("unit", [{"rows": 2}, {"batches": 2}])
def test_windows_keep_nanoseconds(unit: dict[str, int]) -> None:
    """Also over a restart; Python's classes of times end at microseconds."""
    schema = pa.schema([("at", pa.time64("ns")), ("took", pa.duration("ns")), ("when", pa.timestamp("ns"))])
    given = pa.table(
        [pa.array([n, n + 1], pa.int64()).cast(kind) for n, kind in zip((1, 2, 3), schema.types, strict=True)], schema
    )
    with connect(f"memory://fine-windows-{'-'.join(unit)}") as store:
        for is_first in (True, False):
            app = ps.App(store, "fine")
            stream = app.stream("times", schema)
            app.window("newest", on=stream, **unit)

            @app.procedure("take", border=True, emits=stream, schema=schema)
            def take(tx: Any, batch: pa.Table, stream: Any = stream) -> None:
                tx.emit(stream, batch)

            with app:
                if is_first:
                    app.submit("take", given).result(60)
                assert app.window_rows("newest").equals(given)
