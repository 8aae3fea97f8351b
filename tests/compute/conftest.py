"""One Spark session for all tests of this room, and a store on disk for each test."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore import connect
from tussock.statestore.buckets import open_bucket
from tussock.statestore.client import StateStore
from tussock.statestore.contract.object_store import ObjectStore


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two cores, two attempts a task and the format registered."""
    from pyspark.sql import SparkSession

    import tussock.compute.spark as ts
    from tussock.compute.spark.batches.notes import NOTES_FOLDER

    folder = tmp_path_factory.mktemp("spark")
    # Python workers of the session inherit the environment that Spark is started with, as in a driver.
    (folder / "notes").mkdir()
    os.environ[NOTES_FOLDER] = str(folder / "notes")
    session = (
        SparkSession.builder.master("local[2, 2]")
        .appName("tussock-tests")
        .config("spark.ui.enabled", False)
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    ts.register(session)
    yield session
    session.stop()
    del os.environ[NOTES_FOLDER]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """URL of an empty place for a store."""
    return (tmp_path / "store").as_uri()


@pytest.fixture
def store(url: str) -> Iterator[StateStore]:
    """An open store at `url` with a typed table `t` of {id: int64 (key), v: string, x: float64}."""
    with connect(url) as opened:
        opened.create_table(
            "t", schema=pa.schema([("id", pa.int64()), ("v", pa.string()), ("x", pa.float64())]), primary_key=["id"]
        )
        yield opened


@pytest.fixture
def bucket() -> ObjectStore:
    """A bucket in memory, on which stores are opened one after the other."""
    return open_bucket("memory://")
