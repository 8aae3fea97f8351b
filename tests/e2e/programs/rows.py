"""Runs in a pod: commit epochs of the table `kv` up to `TO` (`k0` to `kN`, with the epoch's number), read it back."""

import json
import os

from tussock.statestore import connect

with connect(os.environ["TUSSOCK_STORE"]) as store:
    table = store.table("kv") if "kv" in store.tables() else store.create_table("kv")
    wanted = int(os.environ.get("TO", "0"))
    for batch in range(1, wanted + 1):
        epoch = store.new_epoch()
        table.ingest_batch([(f"k{key:03}".encode(), str(batch).encode()) for key in range(batch * 10)], epoch)
        store.commit_epoch(epoch, writer="rows", batch_id=batch)  # those that are there already are left out
    found = {
        row["key"].decode(): row["value"].decode() for batch in table.scan(prefix=b"") for row in batch.to_pylist()
    }
print(json.dumps(found))
