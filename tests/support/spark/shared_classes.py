"""Spark's classes as Java keeps them once loaded, so that each Java of the tests starts with half of the work.

`python -m support.spark.shared_classes`, in `tests`, runs a small program of Spark and has Java keep the classes that
were used (class data sharing). `make test` and `make test-all` do so once for a clone. `tests/conftest.py` names the
file to each Java of Spark, which ignores one that does not fit to it.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

__all__ = ["JAVA_OPTIONS", "java_options"]

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Tests end before Java's second compiler has paid for itself: without it they take a fifth less of the processors."""


def archive() -> Path:
    """Where the classes are: with this clone, as they are those of its Spark at its path."""
    return Path(__file__).resolve().parents[3] / ".cache" / f"spark-{version('pyspark')}.jsa"


def java_options() -> str:
    """Options of a Java that runs Spark in a test."""
    if not archive().exists():
        return JAVA_OPTIONS
    # An archive that does not fit is no reason to write into what a program prints.
    return f"{JAVA_OPTIONS} -XX:SharedArchiveFile={archive()} -Xlog:cds*=off"


def _use_spark() -> None:
    """A little of all: SQL, joins, Python's functions, a stream, and tables as files."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import udf

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(1000).selectExpr("id", "id % 7 k", "string(id) v")
    rows.join(rows.groupBy("k").sum("id"), "k").orderBy("id").collect()
    rows.select(udf(lambda value: value + value)("v")).collect()

    def same(batches: Iterable[object]) -> Iterable[object]:
        yield from batches

    rows.mapInArrow(same, rows.schema).toArrow()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = (
        stream.writeStream.foreachBatch(lambda batch, _: batch.collect()).trigger(processingTime="0 seconds").start()
    )
    while not query.lastProgress:
        query.awaitTermination(0.2)
    query.stop()
    spark.stop()


def main() -> None:
    """The command: makes the archive if there is none; says why where it cannot."""
    if os.environ.get("SPARK_SUBMIT_OPTS", "").find("ArchiveClassesAtExit") >= 0:
        _use_spark()
        return
    if archive().exists():
        return
    print("Keeping Spark's classes as Java loads them, once; this takes half a minute.", flush=True)
    archive().parent.mkdir(exist_ok=True)
    made = archive().with_suffix(f".{os.getpid()}")
    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={made} -Xlog:cds*=off"
    ended = subprocess.run(
        [sys.executable, "-m", "support.spark.shared_classes"],
        env={**os.environ, "SPARK_SUBMIT_OPTS": options, "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.exists():
        # Another process may have done the same; both files are right.
        made.replace(archive())
    else:
        print(f"Java has kept no classes, so Spark starts slowly: {ended.stderr[-500:]}", file=sys.stderr)


if __name__ == "__main__":
    main()
