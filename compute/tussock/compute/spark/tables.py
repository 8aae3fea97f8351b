"""`read_table`: a DataFrame of a table at one pinned epoch, which reads only the rows that meet an SQL condition.

Spark 4.3 keeps the filters that it pushed down for one query with the loaded relation, and the next query over it gets
the same filters, even the other side of a self-join. So the condition is not pushed into the returned DataFrame: a
temporary relation shows which filters Spark makes of it, and these become the option `where`, which belongs to the
DataFrame. Spark applies all later filters itself.
"""

import json
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tussock.compute.spark.options.options import FILTER_STAGE_OPTION, MOMENTS, ReadOptions, option_name, parse_read
from tussock.compute.spark.reads.connections import working_store
from tussock.compute.spark.reads.reader import resolve_epoch
from tussock.compute.spark.source import FILTER_SWITCH
from tussock.statestore.client import StateStore
from tussock.statestore.snapshot import Snapshot

__all__ = ["read_table", "where_option"]


def read_table(
    spark: SparkSession, table: str, *, store: str | StateStore, where: str | None = None, **options: Any
) -> DataFrame:
    """A table's rows at one epoch, by default the newest; with `where`, those that meet this SQL condition.

    `store` is a URL, or an open store. `options` are those of a read (`asOfEpoch`, `columns`, ...). Parts of the
    condition that compare a column with constants decide which keys are read; functions of the clock in it are
    evaluated at this call. This process pins the epoch for as long as it holds the returned DataFrame; DataFrames made
    from it hold the epoch no longer than the retention.

    Raises `InvalidOption`, `TableNotFound`, `SnapshotExpired`, and for the condition whatever Spark raises.
    """
    url = store if isinstance(store, str) else store.url
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    parsed = parse_read({**texts, "store": url, "table": table})
    snapshot = _pin(working_store(parsed.address) if isinstance(store, str) else store, parsed)
    try:
        if snapshot is not None:
            texts = {name: text for name, text in texts.items() if option_name(name) not in MOMENTS}
            texts["asOfEpoch"] = str(snapshot.epoch)
        wanted = spark.read.format("tussock").options(**texts, store=url, table=table)
        if where is None:
            frame = wanted.load()
        else:
            pushed = where_option(spark, {**texts, "store": url, "table": table}, where)
            frame = wanted.options(**pushed).load().where(where)
    except BaseException:
        if snapshot is not None:
            snapshot.close()
        raise
    if snapshot is not None:
        # At exit the store releases its pins by itself.
        weakref.finalize(frame, _release, snapshot).atexit = False
    return frame


def _pin(store: StateStore, options: ReadOptions) -> Snapshot | None:
    """A pin on the requested epoch; `None` if nothing was ever committed."""
    epoch = resolve_epoch(store, store.table(options.table), options)
    if not epoch:
        return None
    return store.pin_snapshot(None if options.epoch is None and options.timestamp_ms is None else epoch)


def _release(snapshot: Snapshot) -> None:
    # The garbage collector may call this anywhere, even while a lock is held that closing a pin takes.
    threading.Thread(target=snapshot.close, name="tussock-unpin", daemon=True).start()


def where_option(spark: SparkSession, options: dict[str, str], condition: str) -> dict[str, str]:
    """The option `where` with the parts of the condition that it can hold; no option if there are none."""
    before = spark.conf.get(FILTER_SWITCH)
    with tempfile.TemporaryDirectory(prefix="tussock-") as folder:
        stage = Path(folder) / "filters"
        asked = spark.read.format("tussock").options(**{**options, FILTER_STAGE_OPTION: str(stage)})
        spark.conf.set(FILTER_SWITCH, "true")
        try:
            # Optimises the plan, which asks the source about the filters, and runs nothing.
            asked.load().where(condition).inputFiles()
        finally:
            spark.conf.set(FILTER_SWITCH, before)
        return {"where": stage.read_text(encoding="utf-8")} if stage.exists() else {}
