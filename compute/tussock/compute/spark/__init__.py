"""Tussock in Spark: the format `tussock`, and helpers that write one epoch per micro-batch.

`register(spark)` makes the format known to a session; `upsert` and `write_epoch` serve `foreachBatch`.
"""

from tussock.compute.spark.epoch_writer import upsert, write_epoch
from tussock.compute.spark.interpreter import settle_worker_python
from tussock.compute.spark.source import TussockDataSource, register

__all__ = ["TussockDataSource", "register", "upsert", "write_epoch"]

settle_worker_python()
