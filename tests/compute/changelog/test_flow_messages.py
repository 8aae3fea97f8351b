"""What flows say where something does not go on, and what they take as people write it."""

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tussock.compute import changelog as cl
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.envelopes.decoder import ChangesDecoder
from tussock.compute.changelog.flow import host_of
from tussock.statestore import InvalidOption, StateStore, WaitTimeout, connect

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
numbers = itertools.count()


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect(f"memory://messages-{next(numbers)}", compaction=False) as opened:
        yield opened


def stream(store: StateStore, name: str = "s", **options: object) -> cl.Stream:
    return cl.Stream(store, name, SCHEMA, ["k"], **options)  # type: ignore[arg-type]


def test_a_drain_that_does_not_end_says_what_waits(store: StateStore) -> None:
    """A subscriber that does not read, a stream that is held, a pause."""
    s = stream(store)
    d = stream(store, "d", inputs=[s])
    with cl.Flow(store, [s, d]) as flow:
        with d.subscribe(buffer=1):
            for at in range(3):
                s.push(cl.upsert(k="a", v=at)).result(10)
            with pytest.raises(WaitTimeout, match="d is in OUTPUT, and waits for a subscriber or a stream behind it"):
                flow.drain(0.05)
        flow.drain(10)
        d.hold()
        s.push(cl.upsert(k="a", v=9)).result(10)
        with pytest.raises(WaitTimeout, match="d is held, release"):
            flow.drain(0.05)
        d.release()
        flow.drain(10)
        with pytest.raises(WaitTimeout, match="nothing is queued"):
            flow.wait_paused(0.05)
        flow.pause()
        s.push(cl.upsert(k="a", v=10)).result(10)
        with pytest.raises(WaitTimeout, match=r"it is paused at s: resume\(\) it"):
            flow.drain(0.05)
        flow.resume()


def test_a_subscriber_that_comes_too_late_is_told_of_snapshots(store: StateStore) -> None:
    """From its rows it goes on without a gap."""
    s = stream(store, history=1)
    with cl.Flow(store, [s]) as flow:
        for at in range(3):
            s.push(cl.upsert(k="a", v=at))
        flow.drain(10)
        with pytest.raises(cl.HistoryGone, match=r"begin with the rows of snapshot\(\), and subscribe from the number"):
            s.subscribe(from_seq=1)


def test_one_record_is_a_transaction_too(store: StateStore) -> None:
    """As a function may return one."""
    s = stream(store)
    with cl.Flow(store, [s]) as flow:
        assert s.push(cl.insert(k="a", v=1)).result(10) == 1
        flow.drain(10)
        assert flow.stream("s").get("a") == {"k": "a", "v": 1}


def test_words_of_operations_in_any_case(store: StateStore) -> None:
    """The table is the same."""
    s = stream(store)
    with cl.Flow(store, [s]) as flow:
        words = ["insert", "Upsert", "SAFEDelete"]
        s.push(pa.table({"k": ["a", "a", "b"], "v": [1, 2, None], "_op": words})).result(10)
        flow.drain(10)
        assert s.snapshot() == ([{"k": "a", "v": 2}], 1)
        assert host_of(flow).name == flow.name == "s"


def test_units_of_expiry_are_named(store: StateStore) -> None:
    """Where one is not known."""
    for text in ("3m", "1 d", "2h", "every 3 m"):
        stream(store, keep=text)
    for text in ("5 minutes", "5min", "1w"):
        with pytest.raises(InvalidOption, match="with ms, s, m for minutes, h, d or rows"):
            stream(store, keep=text)


def test_a_breakpoint_shows_what_it_is(store: StateStore) -> None:
    """Number, side, stream and condition."""
    s = stream(store)
    cl.Flow(store, [s])
    one = s.break_on("input", "v > 3", every=2)
    one.disable()
    assert repr(one) == "Breakpoint(1: input of 's', 'v > 3', every=2, disabled)"


def test_a_value_that_does_not_fit_names_its_column() -> None:
    """Also where only Arrow knows that it does not."""
    price = pa.schema([pa.field("id", pa.int64(), nullable=False), ("price", pa.decimal128(10, 2))])
    decoder = ChangesDecoder(StreamShape("s", price, ["id"]), "json", "feed 'f'")
    rows, bad = decoder.table([_Message(b'{"id": 1, "price": "1.005"}'), _Message(b'{"id": 2, "price": "1.5"}')])
    assert rows.column("id").to_pylist() == [2]
    assert [one.cause.split(":")[:2] for one in bad] == [["ArrowInvalid", " column 'price'"]]


class _Message:
    key = None
    origin = "message 1"

    def __init__(self, value: bytes) -> None:
        self.value = value
