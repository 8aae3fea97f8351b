"""What a node does for a caller whom it refuses."""

import asyncio
from typing import Any, NoReturn

import grpc.aio
import pytest

from support.store.versions import FakeSystem
from tussock.compute.service.server.call_gate import CallGate
from tussock.compute.service.server.metrics import ApplicationMetrics
from tussock.meta.node.auth.authentication import Authenticator
from tussock.statestore.errors import InvalidOption


class _Left:
    """The context of a call whose client has left, as gRPC tells it: the status can no longer be sent."""

    async def abort(self, *_: Any) -> NoReturn:
        raise grpc.aio.InternalError("failed to send the status")


def test_a_client_that_leaves_while_it_is_refused_is_no_failure_of_the_node() -> None:
    """What a handler raises gRPC logs, except that its call was cancelled."""
    system = FakeSystem()
    gate = CallGate(Authenticator(system), ApplicationMetrics(()), system)

    async def refuse() -> None:
        await gate.refuse(_Left(), InvalidOption("no"))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(refuse())
