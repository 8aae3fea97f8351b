"""Makes the leader of a store compact a table."""

from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.errors import decode_error
from tussock.operator.plugin.meta_nodes.access import AskedMeta
from tussock.statestore.base.system import System
from tussock.statestore.errors import WaitTimeout

__all__ = ["compact"]

PAUSE_SECONDS = 0.5


def compact(leader: AskedMeta, table: str, seconds: float, system: System) -> None:
    """Merge a whole table into one sorted run, and wait for it; `WaitTimeout` after this many seconds.

    Raises the error of the meta node.
    """
    version = leader.call("GetVersion", pb.GetVersionRequest())
    assert isinstance(version, pb.GetVersionResponse)
    request = pb.CompactRequest(table=table, since_seq=max(version.update.seq, 1))
    deadline = system.monotonic() + seconds
    while True:
        answer = leader.call("Compact", request)
        assert isinstance(answer, pb.CompactResponse)
        if answer.HasField("error"):
            raise decode_error(answer.error.SerializeToString())
        if answer.done:
            return
        if system.monotonic() > deadline:
            paused = ", and compaction is paused" if answer.paused else ""
            raise WaitTimeout(
                f"table {table} was not compacted within {seconds:g} s; connected compactors: "
                f"{answer.compactors}{paused}. The compaction continues; ask again later"
            )
        system.sleep(PAUSE_SECONDS)
