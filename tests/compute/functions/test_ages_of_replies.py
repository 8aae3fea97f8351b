"""How long replies of functions are kept where clocks are wrong."""

from support.changelog.hand_clock import HandClock
from support.functions.accounts import cells
from support.store.stores import open_on
from tussock.compute import functions as fn
from tussock.statestore import StateStore
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket

SECONDS = 30
KEEP = 600.0


class Jumping(RealSystem):
    """The wall clock may be ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """With what it is ahead."""
        return super().now_ms() + self.ahead_ms


def program(store: StateStore) -> fn.Runtime:
    return fn.Runtime(store, "p", [cells()], checkpoint=0, keep_replies=KEEP)


def add(runtime: fn.Runtime, request_id: str) -> int:
    return int(runtime.send("cell", "a", "add", 1, request_id=request_id).result(SECONDS))


def test_a_clock_that_jumps_ahead_takes_no_reply() -> None:
    """Story: half an hour ahead, a request ran twice. Back again, replies of that time are of now."""
    system = Jumping()
    with open_on(open_bucket("memory://"), system) as store:
        with program(store) as runtime:
            assert add(runtime, "one") == 1
            system.ahead_ms = 1_800_000
            for number in range(2, 5):
                assert add(runtime, f"other {number}") == number
            assert add(runtime, "one") == 1
            system.ahead_ms = 0
            assert add(runtime, "more") == 5
            assert add(runtime, "other 2") == 2
        with program(store) as again:
            assert add(again, "yet more") == 6
            assert [add(again, name) for name in ("one", "other 3", "more")] == [1, 3, 5]


def test_a_reply_of_a_former_run_goes_in_its_time() -> None:
    """What the wall clock says at a start is believed."""
    bucket, system = open_bucket("memory://"), HandClock()
    with open_on(bucket, system, max_clock_ahead=1e9) as store:
        with program(store) as runtime:
            assert add(runtime, "one") == 1
        system.set(KEEP - 10)
        with program(store) as runtime:
            assert add(runtime, "two") == 2
            assert add(runtime, "one") == 1
        system.set(KEEP + 10)
        with program(store) as runtime:
            assert add(runtime, "three") == 3
            assert add(runtime, "one") == 4
