"""A slow way to the service, on which the first answer takes long: another continent, a port that kubectl forwards."""

import gc
from pathlib import Path

from support.network.proxies import SlowPort
from support.service.platforms import Replica
from tussock.meta.client.transport import GrpcTransport
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.meta.server.settings.node_options import NodeOptions

ANSWER_SECONDS = 60


def test_a_connection_that_takes_long_is_waited_for(tmp_path: Path) -> None:
    """An attempt that is broken off sooner would be followed by others that take as long."""
    replica = Replica(NodeOptions(store_url=(tmp_path / "store").as_uri(), address="127.0.0.1:0"))
    try:
        with SlowPort(replica.address, seconds=1.5) as port:
            transport = GrpcTransport(port.address, connect_seconds=30.0)
            answer = transport.call(METHODS["GetStatus"], pb.GetStatusRequest(), ANSWER_SECONDS)
            assert isinstance(answer, pb.GetStatusResponse)
            transport.close()
    finally:
        replica.stop()
        gc.collect()
