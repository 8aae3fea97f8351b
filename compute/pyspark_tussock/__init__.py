"""What Spark finds by itself: it imports each top-level module `pyspark_*` and registers its `DefaultSource`.

Spark does so at the first use of any format, so the import must be cheap and cannot be allowed to fail: nothing of the
store is imported before somebody asks for the format `tussock`.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):  # type: ignore[misc]
    """The format `tussock`; making one gives a `tussock.compute.spark.TussockDataSource`."""

    def __new__(cls, options: Mapping[str, str]) -> DataSource:
        """The data source with these options."""
        from tussock.compute.spark.source import TussockDataSource

        return TussockDataSource(options)

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)` and in SQL after `USING`."""
        return "tussock"
