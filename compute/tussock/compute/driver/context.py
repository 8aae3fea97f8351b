"""What the driver asks of Spark while an application runs: the one module that uses more than PySpark's public API.

PySpark has no public way to find a session without making one, or to scale executors. The JVM's scheduler can scale
(`ExecutorAllocationClient`, which dynamic allocation uses as well).
`tests/compute/driver/test_driver_scaling.py` runs all of it against a real Spark cluster, so the tests
notice when a new version moves it.
"""

from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SPARK_GONE", "Executors", "active_queries", "running_context"]

SPARK_GONE = (Py4JError, OSError)
"""Errors of a call if Spark stops meanwhile: from the JVM, and from the socket to it."""


def running_context() -> SparkContext | None:
    """The context that the application has made, or `None` before and after."""
    context: SparkContext | None = SparkContext._active_spark_context  # noqa: SLF001
    # It is registered before the JVM has started, and stays registered for a moment after the JVM has stopped.
    return context if getattr(context, "_jsc", None) is not None else None


def active_queries() -> list[StreamingQuery]:
    """The streams that run in the application's session."""
    # `SparkSession.builder.getOrCreate()` would start Spark again if the application has just stopped it.
    session: SparkSession | None = SparkSession._instantiatedSession  # noqa: SLF001
    return [] if session is None else list(session.streams.active)


class Executors:
    """The executors of a running application."""

    def __init__(self, context: SparkContext) -> None:
        self._jvm: Any = context._jvm  # noqa: SLF001
        self._gateway: Any = context._gateway  # noqa: SLF001
        self._scala: Any = context._jsc.sc()  # noqa: SLF001
        self._backend = self._scala.schedulerBackend()
        self._is_local = bool(self._scala.isLocal())

    def active(self) -> list[str]:
        """The ids of those that take tasks: registered, and not being decommissioned; a local Spark has none."""
        if self._is_local:
            return []  # its scheduler does not know the calls below
        found = self._backend.getExecutorIds()
        ids = [str(found.apply(at)) for at in range(found.size())]
        return [executor for executor in ids if self._backend.isExecutorActive(executor)]

    def request(self, total: int) -> None:
        """Set the number of executors from now on: Spark starts the missing ones, and later replaces lost ones."""
        hosts = getattr(getattr(self._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        self._scala.requestTotalExecutors(total, 0, hosts)

    def decommission(self, executors: list[str]) -> None:
        """Give these no more tasks; each finishes what it runs, hands its blocks to the others, and leaves."""
        why = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
            "scaled down", self._jvm.scala.Option.empty()
        )
        pairs = self._gateway.new_array(self._jvm.scala.Tuple2, len(executors))
        for at, executor in enumerate(executors):
            pairs[at] = self._jvm.scala.Tuple2(executor, why)
        # The caller has set the total already, so the backend must not lower it again.
        self._backend.decommissionExecutors(pairs, False, False)
