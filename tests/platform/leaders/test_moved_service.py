"""A Kubernetes Service that was deleted and made anew has another address under the same name."""

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
"""Half of gRPC's default pause between two look-ups of a name."""


def test_a_name_with_a_new_address_is_resolved_again(tmp_path: Path) -> None:
    """At once when the old address does not answer; a compactor that began in between once waited for half a minute."""
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
