"""A Service of Kubernetes that was deleted and made anew has another address under the same name."""

import gc
import time
from pathlib import Path

import pytest

from support.network.names import NameServer
from support.service.platforms import Replica
from tussock.meta.client.transport import GrpcTransport
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.statestore.errors import MetaUnavailable

NOBODY = "127.0.0.99"
FOUND_SECONDS_MAX = 15
"""Half of what gRPC lets pass between two questions for a name, if it is not told otherwise."""


def test_a_name_that_has_another_address_is_asked_for_again(tmp_path: Path) -> None:
    """As soon as nobody answers at the old one; a compactor that began in between waited for half a minute."""
    replica = Replica(NodeOptions(store_url=(tmp_path / "store").as_uri(), address="127.0.0.1:0"))
    port = replica.address.rpartition(":")[2]
    try:
        with NameServer(NOBODY) as names:
            transport = GrpcTransport(f"dns://127.0.0.1:{names.port}/meta.shop.svc.:{port}")
            with pytest.raises(MetaUnavailable, match=NOBODY):
                transport.call(METHODS["GetStatus"], pb.GetStatusRequest(), 2)
            names.answer = "127.0.0.1"
            moved = time.monotonic()
            while True:
                try:
                    answer = transport.call(METHODS["GetStatus"], pb.GetStatusRequest(), 2)
                    break
                except MetaUnavailable:
                    assert time.monotonic() - moved < FOUND_SECONDS_MAX
            assert isinstance(answer, pb.GetStatusResponse)
            transport.close()
    finally:
        replica.stop()
        gc.collect()
