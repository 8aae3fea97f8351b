"""Runs in a pod: commit two epochs through the meta service, read both, and have the compactor merge them."""

import json

from tussock.statestore import connect

with connect("tussock://meta:7370") as store:
    table = store.create_table("kv")
    epoch = store.new_epoch()
    table.ingest_batch([(b"a", b"1"), (b"b", b"1")], epoch)
    first = store.commit_epoch(epoch, writer="client", batch_id=1)
    epoch = store.new_epoch()
    table.ingest_batch([(b"a", b"2"), (b"b", None)], epoch)
    store.commit_epoch(epoch, writer="client", batch_id=2)

    def values(epoch: int | None) -> dict[str, str | None]:
        found = {key: table.get(key.encode(), epoch=epoch) for key in "ab"}
        return {key: value and bytes(value).decode() for key, value in found.items()}

    now, before = values(None), values(first)
    store.compact("kv")
    found = store.version().find_table("kv")
    print(json.dumps({"now": now, "before": before, "runs": len(found.levels.runs())}))
