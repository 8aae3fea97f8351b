"""The status counts the tasks of each compactor."""

import json
from pathlib import Path

from support.service.guarded_meta import GuardedMeta
from support.waiting import eventually
from tussock.meta.rpc import meta_pb2 as pb


def test_a_compactor_is_shown_with_its_tasks(tmp_path: Path) -> None:
    """A compactor that does none of its tasks still has them in `tussock status` and the console."""
    session = "ab" * 16
    with GuardedMeta(tmp_path) as meta, meta.connect("writer") as store:
        compactor = meta.caller("compactor")
        compactor.call(
            "OpenSession", pb.OpenSessionRequest(session_id=session, kind=pb.COMPACTOR, name="idle", slots=1)
        )
        kv = store.create_table("kv")
        for number in range(8):
            epoch = store.new_epoch()
            kv.ingest_batch([(b"%d" % number, b"1")], epoch)
            store.commit_epoch(epoch)

        def tasks() -> int:
            answer = compactor.call("GetStatus", pb.GetStatusRequest())
            sessions = json.loads(answer.status)["sessions"]
            return sum(one["tasks"] for one in sessions if one["name"] == "idle")

        eventually(lambda: tasks() == 1)
