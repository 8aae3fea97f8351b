"""Vnodes equal those of Spark: recorded vectors, a live Spark, and the ranges of its partitions."""

import datetime as dt
import decimal
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.keys.spark_hash import hash_value, spark_hash, value_hasher
from tussock.statestore.keys.vnode import partition_vnodes, vnode_of, vnodes

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "vnodes.md"
UTC = dt.UTC


def big(digits: str) -> decimal.Decimal:
    return decimal.Decimal(digits)


# type -> (values at the edges, a function that draws one more)
KINDS: dict[pa.DataType, tuple[list[Any], Any]] = {
    pa.bool_(): ([True, False], lambda r: r.random() < 0.5),
    pa.int8(): ([-128, 127, 0], lambda r: r.randint(-128, 127)),
    pa.int16(): ([-(2**15), 2**15 - 1], lambda r: r.randint(-(2**15), 2**15 - 1)),
    pa.int32(): ([-(2**31), 2**31 - 1, -1], lambda r: r.randint(-(2**31), 2**31 - 1)),
    pa.int64(): ([-(2**63), 2**63 - 1, -1], lambda r: r.randint(-(2**63), 2**63 - 1)),
    pa.float32(): (
        [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-45],
        lambda r: float(np.float32(r.gauss(0, 1e6))),
    ),
    pa.float64(): ([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324], lambda r: r.gauss(0, 1e100)),
    pa.decimal128(9, 2): (
        [big("-9999999.99"), big("9999999.99"), big("0.00")],
        lambda r: big(r.randint(-999, 999)) / 4,
    ),
    pa.decimal128(18, 0): ([big("-" + "9" * 18), big("9" * 18)], lambda r: big(r.randint(-(10**17), 10**17))),
    pa.decimal128(38, 0): (
        [
            big("-" + "9" * 38),
            big("9" * 38),
            *(big(s * 2**b + d) for s in (1, -1) for b in range(126) for d in (-1, 0)),
        ],
        lambda r: big(r.randint(-(10 ** r.randint(0, 37)), 10 ** r.randint(0, 37))),
    ),
    pa.string(): (
        ["", "\0", "é", "日本語", "😀!", "a" * 1000],
        lambda r: "".join(r.choices("abö→😀", k=r.randint(0, 40))),
    ),
    pa.binary(): ([b"", b"\0", b"\xff\xfe\x80", b"\x80" * 1001], lambda r: r.randbytes(r.randint(0, 40))),
    pa.date32(): ([dt.date(1, 1, 1), dt.date(9999, 12, 31)], lambda r: dt.date.fromordinal(r.randint(1, 3_000_000))),
    pa.timestamp("us", "UTC"): (
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(9999, 12, 31, tzinfo=UTC)],
        lambda r: dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=r.randint(-(10**16), 10**16)),
    ),
    pa.timestamp("ns"): (
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999)],
        lambda r: dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=r.randint(-(10**15), 10**15)),
    ),
    pa.duration("us"): (
        [dt.timedelta(microseconds=-1)],
        lambda r: dt.timedelta(microseconds=r.randint(-(10**15), 10**15)),
    ),
    pa.time64("us"): (
        [dt.time.min, dt.time.max],
        lambda r: dt.time(r.randrange(24), r.randrange(60), r.randrange(60), r.randrange(10**6)),
    ),
    pa.binary(5): ([b"\0" * 5], lambda r: r.randbytes(5)),
}


def column(kind: pa.DataType, rows: int, seed: int) -> pa.Array:
    """`rows` values of a type: its edges, then random ones, a tenth of them null."""
    edges, draw = KINDS[kind]
    rng = random.Random(f"{kind}{seed}")
    values = [None, *edges, *(None if rng.random() < 0.1 else draw(rng) for _ in range(rows))][:rows]
    return pa.array(values, kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_one_value_hashes_like_its_row_in_a_column(kind: pa.DataType) -> None:
    """`value_hasher` of each Python value, null included, equals `spark_hash` of the column, at any seed."""
    array = column(kind, 300, 1)
    hasher = value_hasher(kind)
    values = array.cast(pa.timestamp("us")).to_pylist() if kind == pa.timestamp("ns") else array.to_pylist()
    assert spark_hash([array]).tolist() == [hasher(value, 42) for value in values]
    assert spark_hash([array], 7).tolist() == [hasher(value, 7) for value in values]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_slice_hashes_like_its_rows(kind: pa.DataType) -> None:
    """The offset of a slice counts, for validity and for values; a slice without rows has no hashes."""
    array = column(kind, 200, 2)
    whole = spark_hash([array])
    assert spark_hash([array.slice(37, 99)]).tolist() == whole[37:136].tolist()
    assert spark_hash([array.slice(5, 0)]).tolist() == []


def test_columns_chain_and_a_null_leaves_the_seed() -> None:
    """The hash of a column seeds the next one; nulls everywhere leave Spark's 42."""
    a, b = pa.array([1, None, None], pa.int64()), pa.array(["x", "x", None])
    assert spark_hash([a, b]).tolist() == [
        spark_hash([b.slice(0, 1)], int(spark_hash([a])[0]))[0],
        spark_hash([b])[1],
        42,
    ]
    assert spark_hash([a, b]).tolist() == [
        hash_value(row, [a.type, b.type]) for row in zip(a.to_pylist(), b.to_pylist(), strict=True)
    ]


def test_the_chunks_of_a_long_column_hash_like_one() -> None:
    """More rows than are hashed at a time, with long strings among short ones."""
    strings = [f"{i}" for i in range(70_000)]
    strings[40_000] = "long " * 5000
    hashes = spark_hash([pa.array(strings)])
    hasher = value_hasher(pa.string())
    for row in (0, 32_767, 32_768, 40_000, 69_999):
        assert hashes[row] == hasher(strings[row], 42)


def test_types_that_spark_lacks_hash_like_the_type_it_reads() -> None:
    """Unsigned integers, other units of time, and large or fixed-size strings and binaries."""
    pairs = [
        (pa.array([0, 255], pa.uint8()), pa.array([0, 255], pa.int32())),
        (pa.array([0, 65535], pa.uint16()), pa.array([0, 65535], pa.int32())),
        (pa.array([0, 2**32 - 1], pa.uint32()), pa.array([0, 2**32 - 1], pa.int64())),
        (pa.array([0, 2**64 - 1], pa.uint64()), pa.array([0, -1], pa.int64())),
        (pa.array([-1, 5], pa.timestamp("s")), pa.array([-1_000_000, 5_000_000], pa.timestamp("us"))),
        (pa.array([-1, 5], pa.timestamp("ms", "UTC")), pa.array([-1_000, 5_000], pa.timestamp("us"))),
        (pa.array([-1, 5999], pa.timestamp("ns")), pa.array([-1, 5], pa.timestamp("us"))),
        (pa.array([-1, 5999], pa.duration("ns")), pa.array([-1, 5], pa.duration("us"))),
        (pa.array([1, 5], pa.time32("s")), pa.array([1_000_000, 5_000_000], pa.time64("us"))),
        (pa.array([1, 5], pa.time32("ms")), pa.array([1_000_000, 5_000_000], pa.time64("ns"))),
        (pa.array([-1, 86_400_000], pa.date64()), pa.array([-1, 1], pa.date32())),
        (pa.array(["é", "b"], pa.large_string()), pa.array(["é", "b"])),
        (pa.array([b"a", b""], pa.large_binary()), pa.array([b"a", b""], pa.binary())),
        (pa.array([b"ab", b"cd"], pa.binary(2)), pa.array([b"ab", b"cd"], pa.binary())),
    ]
    for ours, sparks in pairs:
        assert spark_hash([ours]).tolist() == spark_hash([sparks]).tolist(), ours.type


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.float16(), pa.null(), pa.decimal256(40, 0)], ids=str)
def test_a_type_without_a_hash_is_refused(kind: pa.DataType) -> None:
    """The error names the type and lists what can be hashed, for columns and for single values."""
    with pytest.raises(SchemaMismatch, match=re.escape(f"type {kind} cannot be hashed")):
        vnodes([pa.nulls(1, kind)])
    with pytest.raises(SchemaMismatch, match="expected a boolean"):
        value_hasher(kind)


def test_a_double_too_small_for_a_float_hashes_as_zero() -> None:
    """It becomes -0.0 only as a float, and -0.0 is hashed as 0.0."""
    assert value_hasher(pa.float32())(-5e-324, 42) == spark_hash([pa.array([0.0], pa.float32())])[0]


def test_hash_of_no_columns_is_refused() -> None:
    """Without a column the number of rows is unknown."""
    with pytest.raises(SchemaMismatch, match="no columns"):
        vnodes([])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50), st.integers(0, 8), st.integers(0, 8))
def test_a_spark_partition_is_one_range_of_vnodes(keys: list[int], m: int, bits: int) -> None:
    """Rows that Spark puts into partition i of 2**m have exactly the vnodes of `partition_vnodes(i, 2**m)`."""
    of, count = 1 << min(m, bits), 1 << bits
    array = pa.array(keys, pa.int64())
    partitions = spark_hash([array]).astype(np.int32).astype(np.int64) % of
    for partition, vnode in zip(partitions.tolist(), vnodes([array], count).tolist(), strict=True):
        assert vnode in partition_vnodes(partition, of, count)


@pytest.mark.parametrize("of", [1, 2, 8, 256])
def test_the_ranges_of_all_partitions_are_all_vnodes(of: int) -> None:
    """No vnode is in two partitions, and none is left out."""
    covered = sorted(vnode for partition in range(of) for vnode in partition_vnodes(partition, of))
    assert covered == list(range(256))


def test_a_smaller_vnode_is_the_top_bits_of_a_larger_one() -> None:
    """The rows of a vnode of a small table are a range of vnodes of a large one."""
    array = column(pa.int64(), 500, 3)
    for bits in range(9):
        assert vnodes([array], 1 << bits).tolist() == (vnodes([array]) >> np.uint8(8 - bits)).tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vnodes([pa.array([1])], 0), "0 vnodes; expected a power of two from 1 to 256"),
        (lambda: vnodes([pa.array([1])], 3), "3 vnodes"),
        (lambda: vnodes([pa.array([1])], 512), "512 vnodes"),
        (lambda: partition_vnodes(0, 3), "3 Spark partitions; expected a power of two"),
        (lambda: partition_vnodes(0, 16, 8), "16 Spark partitions share 8 vnodes"),
        (lambda: partition_vnodes(8, 8), "partition 8 of 8; expected 0 to 7"),
        (lambda: partition_vnodes(-1, 8), "partition -1 of 8"),
    ],
)
def test_impossible_counts_are_refused(call: Any, message: str) -> None:
    """The error names the number given and what is possible."""
    with pytest.raises(InvalidOption, match=re.escape(message)):
        call()


VECTORS = [
    ("bool", "0000002adea578e3379fae8f379fae8fdea578e3379fae8f379fae8f379fae8fdea578e3379fae8fdea578e3379fae8f"),
    ("int8", "0000002a422a136543b4d8ed379fae8f79f344120000002a62afb8a089e732edc0fa1948e504013ad05d83f73416996e"),
    ("int16", "0000002a906c86364a7668e422415a4def388799482538980c8e760219cf4707dfa315eaf4c6948d4a4f72bff0187701"),
    ("int32", "0000002a2b1f0fc607fb67e7a0590e3daf8a5f6c71e35bba8f622e5452235b016d46db42829787950df4c4bc11e0afd3"),
    ("int64", "0000002acd1e64fba05b5d7bc8008529deccb1eb7f55cbb58673aa64f9fe97c0f3e815c6d4837a2c0000002abd048be7"),
    ("float", "0000002a379fae8f379fae8f78cf58cd197a3a7eeb2eb18adea578e3230350e502e22bc082cddb60084aa9a0458236e2"),
    ("double", "0000002a9c67b85d9c67b85d31b0f4621b7be3a4b3a005cf99f0149d7f0fb3eefbdfb4fbfec637b0d5f24d211b007a3a"),
    (
        "decimal128(9, 2)",
        "0000002aa9505bdcf4733dcd9c67b85d7a5c6e0a17e53aedf57f52d382fa0ffc679d4e02dc65f384360f752400e63760",
    ),
    (
        "decimal128(18, 0)",
        "0000002a74f7675694fd7566130ce20b66d10ecdcd11bb40d55676229e358bc252e2d9b4497bacab0819d58c9da2ea60",
    ),
    (
        "decimal128(38, 0)",
        "0000002a53803506cf45b9bbd1497b27e8f30d16e8f30d16c5c8c168095815282055810a0e68d83b3e8926afeaadc0ce",
    ),
    ("string", "0000002a087fcd5cd1497b277e4f00f6bbde7196ddab5016ac2d0cca145d7b7c633e724aff02cae5aa77f73be26f71c6"),
    ("binary", "0000002a087fcd5cd1497b2707dc2fccf030693e5a07e02154b8afdd48ac6789c96ab88daba89b4a7aba063865b0c6ed"),
    ("date32[day]", "0000002abba0886843b44143259a9398313f1e208168868a24982e9958237793e2e3a0489462f261387ed260a40cced0"),
    (
        "timestamp[us, tz=UTC]",
        "0000002ac8008529556c8b11cd74ec8505d8566c620d05b65a208a8a29ac9e50987b2102630a5c61a7f0dcc50000002a",
    ),
    (
        "timestamp[ns]",
        "0000002ac8008529bf55d2c60000002a6360812834d3aef80000002aa35646d4ea5cbc3a64ee4709a541e10043799b71",
    ),
    (
        "duration[us]",
        "0000002ac800852926e6b4f08d36324834511d62283d55b1611d2690a72e3943cfdef9b11886915f736372ed5eb71c0e",
    ),
    ("time64[us]", "0000002a9c67b85d87efb4950000002a0000002a96abd2f58405e2eda44dcf1f73959c462b00e6276997f0250000002a"),
    (
        "fixed_size_binary[5]",
        "0000002aa3a556524dc02ee5d2c612b9c5da335e8168ae13d284a3a5971e3b2ffcbc953c10d8e6e4284c2964108c76ac",
    ),
    ("chain", "0000002a37ce92cfdf36561dc0429ede026c629cd972facd586fda236496e68c528fe7e7bd52082ca1b46ac53f4f449b"),
]


def vector_columns() -> list[tuple[str, list[pa.Array]]]:
    """The columns for which `VECTORS` was recorded, each with a name."""
    single = [(str(kind), [column(kind, 12, 5)]) for kind in KINDS]
    chain = [column(kind, 12, 6) for kind in (pa.int64(), pa.string(), pa.float64(), pa.decimal128(38, 0))]
    return [*single, ("chain", chain)]


def test_hashes_equal_recorded_ones_of_spark() -> None:
    """Spark 4.3 gave them for twelve rows of each type and of a chain: vnodes are on disk, so they are frozen."""
    ours = [(name, "".join(f"{h:08x}" for h in spark_hash(columns).tolist())) for name, columns in vector_columns()]
    assert ours == VECTORS


def test_the_worked_examples_of_the_format_page_hold() -> None:
    """Each row of the page's table is what this code computes."""
    rows = re.findall(
        r"^\| `(.+)` \| `(\w+)` \| `0x([0-9a-f]{8})` \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert len(rows) >= 5
    for text, kind, expected, vnode, of_eight in rows:
        value = eval(text, {"Decimal": decimal.Decimal})
        array = pa.array([value], getattr(pa, kind)())
        assert f"{spark_hash([array])[0]:08x}" == expected
        assert vnodes([array]).tolist() == [int(vnode)]
        assert vnode_of([value], [array.type]) == int(vnode)
        assert vnode_of([value], [array.type], 8) == int(of_eight)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("test_vnode")
    options = {
        "ui.enabled": "false",
        "sql.session.timeZone": "UTC",
        "driver.memory": "512m",
        "sql.shuffle.partitions": "1",
    }
    for name, value in options.items():
        builder = builder.config(f"spark.{name}", value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def hash_in_spark(spark: Any, columns: list[pa.Array]) -> list[int]:
    """Spark's own hash() of each row, in order, as unsigned."""
    names = [f"c{i}" for i in range(len(columns))]
    rows = pa.array(range(len(columns[0])), pa.int64())
    frame = spark.createDataFrame(pa.table([rows, *columns], ["row", *names]))
    answer = frame.selectExpr("row", f"hash({', '.join(names)}) AS h").toArrow().sort_by("row")
    return [h & 0xFFFFFFFF for h in answer["h"].to_pylist()]


@pytest.mark.spark
def test_hashes_equal_those_of_a_live_spark(spark: Any) -> None:
    """Spark's hash() of 2,000 rows of every type, of a chain over all types, and of the recorded vectors."""
    for kind in KINDS:
        array = column(kind, 2000, 4)
        assert spark_hash([array]).tolist() == hash_in_spark(spark, [array]), kind
    chain = [column(kind, 2000, 8) for kind in KINDS]
    assert spark_hash(chain).tolist() == hash_in_spark(spark, chain)
    for name, columns in vector_columns():
        recorded = "".join(f"{h:08x}" for h in hash_in_spark(spark, columns))
        assert (name, recorded) in VECTORS
