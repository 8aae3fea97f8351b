"""A program that copies a table by its change feed until it is killed: the victim of the crash test of change streams.

Usage: `python changes.py STORE FOLDER DIE_AFTER`. One query follows table `t` from the latest epoch and notes
each change in table `log`, exactly once, by `write_epoch`. Where `DIE_AFTER` is not negative it kills its whole process
group right after that batch is in the store, which is before Spark notes it.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any


def main(url: str, folder: Path, die_after: int) -> None:
    """Stream until killed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    import tussock.compute.spark as ts

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    ts.register(spark)

    def note(changes: Any, batch: int) -> None:
        renamed = changes.withColumnsRenamed({"_op": "op", "_epoch": "epoch"}).drop("_commit_timestamp")
        ts.write_epoch(batch, {"log": renamed}, store=url, writer="copy", partitions=1)
        if batch == die_after:
            os.killpg(0, signal.SIGKILL)

    feed = spark.readStream.format("tussock").options(
        store=url, readChangeFeed=True, startingEpoch="latest", consumerId="copy", maxEpochsPerTrigger=1
    )
    query = feed.load("t").writeStream.foreachBatch(note).option("checkpointLocation", str(folder / "checkpoint"))
    while True:
        try:
            query.start().awaitTermination()
        except StreamingQueryException as error:
            # Spark gives the process of a source ten seconds to start, which a busy machine may not keep.
            if "Python worker failed to connect back" not in str(error):
                raise


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
