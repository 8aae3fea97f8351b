"""Registers the format `tussock`: Spark imports each top-level module `pyspark_*` and takes its `DefaultSource`.

Spark does so at the first use of any format, so the import must be cheap and must not fail. Nothing of the store is
imported before a program asks for the format `tussock`.
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
        """The name for `format(...)` and, in SQL, after `USING`."""
        return "tussock"
