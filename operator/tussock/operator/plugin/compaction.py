"""Makes the leader of a store compact a table, with any certificate that the user may read."""

import grpc

from tussock.meta.client.transport import GrpcTransport
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.errors import decode_error
from tussock.meta.rpc.methods import METHODS
from tussock.operator.probes.platform import Certificates
from tussock.statestore.base.system import System
from tussock.statestore.errors import WaitTimeout

__all__ = ["compact"]

PAUSE_SECONDS = 0.5
ANSWER_SECONDS = 10.0


def compact(
    address: str, certificates: Certificates | None, server_name: str, table: str, seconds: float, system: System
) -> None:
    """Merge a whole table into one sorted run, and wait for it; `WaitTimeout` after this many seconds.

    Raises the error of the meta node at `address` (`host:port`), which has to be the leader.
    """
    credentials = None
    if certificates is not None:
        credentials = grpc.ssl_channel_credentials(certificates.ca, certificates.key, certificates.certificate)
    # The way is long, through the API server and a kubelet, and kubectl closes the port after one broken attempt.
    named = server_name if credentials else ""
    transport = GrpcTransport(address, credentials, server_name=named, connect_seconds=ANSWER_SECONDS)
    try:
        version = transport.call(METHODS["GetVersion"], pb.GetVersionRequest(), ANSWER_SECONDS)
        assert isinstance(version, pb.GetVersionResponse)
        request = pb.CompactRequest(table=table, since_seq=max(version.update.seq, 1))
        deadline = system.monotonic() + seconds
        while True:
            answer = transport.call(METHODS["Compact"], request, ANSWER_SECONDS)
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
    finally:
        transport.close()
