"""Limits on the mistakes of a caller."""

import pytest

from support.store.versions import FakeSystem
from tussock.meta.node.auth.authentication import Authenticator
from tussock.meta.node.wire.rate_limits import RateLimits
from tussock.meta.rpc.methods import METHODS
from tussock.meta.server.status.counters import ReplicaMetrics
from tussock.meta.server.wire.gate import FAULTS_BURST, FAULTS_PER_SECOND, Arrival, Gate
from tussock.statestore.errors import InvalidOption, RateLimited


def test_a_caller_of_refused_calls_is_slowed_down() -> None:
    """The limit is by host and identity: no working client makes that number of mistakes, and others go on."""
    system = FakeSystem()
    gate = Gate(system, Authenticator(system), RateLimits(system, 5000, 10_000), ReplicaMetrics().calls)

    def mistake(peer: str) -> None:
        call = gate.arrive(METHODS["Pin"], Arrival(peer, [("tussock-protocol", "1")], {}))
        try:
            call.admit()
        except RateLimited as error:
            call.refuse(error)
            raise
        call.refuse(InvalidOption("token 'x' of a pin is not 16 hex digits"))

    for _ in range(FAULTS_BURST):
        mistake("ipv4:10.0.0.1:4000")
    with pytest.raises(RateLimited, match=f"more than {FAULTS_PER_SECOND} calls a second that are refused") as raised:
        mistake("ipv4:10.0.0.1:4001")
    assert raised.value.args[1] == 1000 // FAULTS_PER_SECOND
    mistake("ipv4:10.0.0.2:4000")
    system.forward(1)
    mistake("ipv4:10.0.0.1:4001")
