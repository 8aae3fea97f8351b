"""What a client sends again, and in which order: a state machine without a network."""

from concurrent.futures import Future

from tussock.compute.service.client.window import PendingRequest, SendWindow
from tussock.compute.service.rpc import application_pb2 as pb


def window_of(count: int, *, repeatable: set[int] = frozenset()) -> SendWindow:  # type: ignore[assignment]
    window = SendWindow()
    for number in range(1, count + 1):
        request = pb.Request(number=number, stats=pb.Stats())
        window.add(PendingRequest(number, request, request.ByteSize(), number in repeatable, Future(), float(number)))
    return window


def numbers(group: pb.Requests | None) -> list[int]:
    return [] if group is None else [request.number for request in group.requests]


def test_what_waits_goes_together() -> None:
    """In its order, and counts until it is answered."""
    window = window_of(4)
    assert numbers(window.group()) == [1, 2, 3, 4]
    assert not window.may_send
    assert len(window) == 4
    assert window.answered(2) is not None
    assert window.answered(2) is None
    assert len(window) == 3


def test_a_request_that_was_cancelled_is_not_sent() -> None:
    window = SendWindow()
    for number in (1, 2):
        window.add(PendingRequest(number, pb.Request(number=number), 2, False, Future(), 0.0))
    cancelled = window.take_all()
    cancelled[0].future.cancel()
    for one in cancelled:
        window.add(one)
    assert numbers(window.group()) == [2]


def test_refused_requests_go_again_in_order() -> None:
    """Nothing is sent until all behind the first refused one have come back; then they say that they come again."""
    window = window_of(5)
    window.group()
    assert window.answered(1) is not None
    for number in (3, 2):
        pending = window.answered(number)
        assert pending is not None
        window.refused(pending)
    assert not window.is_due_again
    for number in (4, 5):
        pending = window.answered(number)
        assert pending is not None
        window.refused(pending)
    assert window.is_due_again
    assert not window.may_send
    window.send_again()
    group = window.group()
    assert group is not None
    assert group.again
    assert numbers(group) == [2, 3, 4, 5]


def test_a_request_before_the_refused_one_may_run_on() -> None:
    """It was taken; only those behind have to come back."""
    window = window_of(2)
    window.group()
    pending = window.answered(2)
    assert pending is not None
    window.refused(pending)
    assert window.is_due_again


def test_a_broken_connection_leaves_only_what_may_go_again() -> None:
    """Requests that may be repeated and those that were not sent, by their numbers; of the others nobody knows."""
    window = window_of(3, repeatable={2})
    window.group()
    request = pb.Request(number=4)
    window.add(PendingRequest(4, request, 2, False, Future(), 0.0))
    assert [one.number for one in window.broken()] == [1, 3]
    assert numbers(window.group()) == [2, 4]


def test_what_a_node_did_not_take_goes_to_the_next_one() -> None:
    """Nothing is sent to the node that ends; what it took may still be answered."""
    window = window_of(4)
    window.group()
    window.closes(3)
    assert not window.may_send
    assert window.answered(1) is not None
    assert [one.number for one in window.broken()] == [2]
    assert numbers(window.group()) == [3, 4]
