"""The error of a client that found no leader in its time."""

import pytest

from support.store.versions import FakeSystem
from tussock.meta.client.connection import MetaConnection
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.errors import MetaUnavailable


class Overslept(FakeSystem):
    """A busy machine, on which each pause takes a second too long."""

    def sleep(self, seconds: float) -> None:
        self.forward(seconds + 1)


class Refusing:
    """The way to a replica that is not trusted."""

    def __init__(self, address: str) -> None:
        self.address = address

    def call(self, *_: object) -> None:
        raise MetaUnavailable("hostname verification failed")

    def close(self) -> None: ...


@pytest.mark.parametrize("deadline", [0.0, 0.5, 2.5])
def test_the_error_holds_the_last_answer_of_a_replica(deadline: float) -> None:
    """Also if the time ran out in the pause after it; if no replica was asked, the error says that the time was up."""
    connection = MetaConnection(["a:1"], Overslept(), Refusing, name="test", deadline_seconds=deadline)  # type: ignore[arg-type]
    told = "hostname verification failed" if deadline else "the time was up"
    with pytest.raises(MetaUnavailable, match=f"answered in time; a:1: (GetStatus: )?{told}"):
        connection.call("GetStatus", pb.GetStatusRequest())
