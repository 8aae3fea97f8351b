"""Times in messages of JSON, whose digits Python's classes do not all hold."""

from typing import Any

import pyarrow as pa

from support.feeds.broker import KafkaBroker
from support.feeds.sums import rows_of
from tussock.compute import procedures as ps
from tussock.statestore import StateStore

TIMES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        *(("of_day", pa.time64("ns")), ("when", pa.timestamp("ns", "UTC")), ("took", pa.duration("ns"))),
        *(("coarse", pa.timestamp("us")), ("list", pa.list_(pa.timestamp("ns")))),
    ]
)


def test_times_in_json_keep_all_digits(store: StateStore, kafka: KafkaBroker) -> None:
    """Python's classes round what is below a microsecond. What a column cannot hold is no message of it."""
    topic = kafka.topic()
    values = [
        '"of_day": "01:02:03.123456789", "when": "2026-01-01T00:00:00.000000001Z", "took": "-PT1.000000001S"',
        '"of_day": "01:02:03", "when": "2026-01-01T02:00:00.5+02:00", "took": "PT1S", "list": ["2026-01-01T00:00:00"]',
        '"coarse": "2026-01-01T00:00:00.0000010", "list": ["1970-01-01T00:00:00.0000000012", null]',
        '"coarse": "2026-01-01T00:00:00.0000015"',
        '"of_day": 5',
        '"of_day": "noon"',
        '"when": "2026-01-01T00:00:00.000000001"',
        '"list": ["1970-01-01T00:00:00.000000007", null]',
    ]
    kafka.put(topic, [f'{{"id": {at}, {value}}}'.encode() for at, value in enumerate(values)])
    app = ps.App(store, "times")
    app.table("kept", TIMES, primary_key=["id"])

    @app.procedure("keep", border=True, schema=TIMES)
    def keep(tx: Any, batch: pa.Table) -> None:
        tx.table("kept").upsert(batch)

    app.feed("keep", ps.KafkaFeed(kafka.servers, topic, TIMES, on_bad="skip"))
    with app:
        app.drain(60)
    found = pa.Table.from_batches(store.table("kept").read(), TIMES).sort_by("id")
    counts = {name: found[name].cast(pa.int64()).to_pylist() for name in ("of_day", "when", "took", "coarse")}
    new_year = 1_767_225_600 * 10**9
    assert found["id"].to_pylist() == [0, 1, 7]
    assert counts == {
        "of_day": [3_723_123_456_789, 3_723_000_000_000, None],
        "when": [new_year + 1, new_year + 5 * 10**8, None],
        "took": [-1_000_000_001, 10**9, None],
        "coarse": [None] * 3,
    }
    assert found["list"].cast(pa.list_(pa.int64())).to_pylist() == [None, [new_year], [7, None]]
    causes = [row["cause"] for row in rows_of(store.table("times.dead_letters"))]
    assert [cause.partition(": ")[2] for cause in causes] == [
        "'1970-01-01T00:00:00.0000000012' is no timestamp[ns]: it has more digits - at `$.list[0]`",
        "'2026-01-01T00:00:00.0000015' is no timestamp[us]: it has more digits - at `$.coarse`",
        "expected a text of ISO 8601 for time64[ns], got 5 - at `$.of_day`",
        "'noon' is no time64[ns]: Invalid RFC3339 encoded time - at `$.of_day`",
        "'2026-01-01T00:00:00.000000001' is no timestamp[ns, tz=UTC]: a time without a zone - at `$.when`",
    ]
