"""What a program and its workers tell each other; `docs/formats/worker-protocol.md` describes it for a second worker.

Each message is a frame: its length (4 bytes, little-endian), then msgpack. The program asks, and the worker answers
each question once, in order; `StillAlive` comes between while it works.
"""

from typing import Any

import msgspec

__all__ = [
    "FRAME_BYTES_MAX",
    "PROTOCOL",
    "STEP_BYTES_MAX",
    "TOKEN_BYTES_MAX",
    "AllDone",
    "BeginAt",
    "CachedEnd",
    "CachedPart",
    "Carried",
    "CutPart",
    "EpochStep",
    "FromWorker",
    "Hung",
    "Meet",
    "NextCut",
    "Refused",
    "RemoteCall",
    "StateReads",
    "StateRows",
    "StateWrites",
    "Stepped",
    "StillAlive",
    "ToWorker",
    "TokenStay",
    "TravelToken",
    "Welcome",
    "Welcomed",
    "token_bytes",
    "whole",
    "wide",
]

PROTOCOL = 2
TOKEN_BYTES_MAX = 16 << 20
"""Of one transaction on its way: calls that wait, and what it has drawn."""
STEP_BYTES_MAX = 16 << 20
"""After this much a step, or its answer, takes no more transactions."""
FRAME_BYTES_MAX = 64 << 20
"""Of any message; a step may have one transaction more than its bytes allow."""

WireKey = Any
"""A string, an integer of 64 bits, or bytes."""
Number = int | str
"""An integer of any size: as text, where 63 bits do not hold it."""


def wide(number: int) -> Number:
    """An integer for a message."""
    return number if number < 1 << 63 else str(number)


def whole(number: Number) -> int:
    """An integer of a message."""
    return int(number)


class RemoteCall(msgspec.Struct, array_like=True, gc=False):
    """A function that is to run."""

    operator: int
    key: WireKey
    function: str
    arguments: msgspec.Raw
    share: Number
    caller: int
    is_awaited: bool


class Carried(msgspec.Struct, array_like=True):
    """What a transaction has drawn."""

    kept: dict[str, Any]
    fresh: list[tuple[str, Any]]
    counts: dict[str, int]


class TravelToken(msgspec.Struct, array_like=True, gc=False):
    """A transaction that moves to the worker which has its next entity. Of each run there is one, so it is serial.

    Workers keep many for an epoch; they are in no circle, so the garbage collector need not look at them.
    """

    tid: int
    run: int
    """Counts the attempts to run it."""
    first: int
    """In the lock phase the attempt by whose entities it has its locks; else 0."""
    begun: int
    """Functions that have begun."""
    call: RemoteCall | None
    """What runs next; `None`: the function that awaits `value` goes on."""
    value: msgspec.Raw
    path: list[int]
    """Workers of functions that await others, the one that goes on first the last."""
    waiting: list[msgspec.Raw]
    """What runs when nobody awaits any more: each a `RemoteCall`, which only the worker that runs it reads."""
    parts: Number
    of: Number
    """The shares that have come back, as a number of parts, and of how many."""
    drawn: Carried | None
    may_ask: bool
    """Whether it may make a call outside: what leads to it is durable."""
    is_timed: bool = False
    """Whether workers tell how long its functions took."""
    held: int = 0
    """Bytes of arguments of calls that have not returned, in all workers."""


def token_bytes(token: TravelToken) -> int:
    """Bytes of what a token carries for its functions, about: calls and values."""
    called = 0 if token.call is None else len(token.call.arguments)
    return len(token.value) + called + sum(map(len, token.waiting))


class TokenStay(msgspec.Struct, array_like=True):
    """What became of a token in one worker."""

    tid: int
    end: str
    """`moved`, `ended`, `aborted`, `diverged` (of the lock phase), `asks` (to call outside), `unread`, `differs`."""
    token: TravelToken | None
    """Where it moves; of any other end, what it had drawn."""
    value: msgspec.Raw
    """What the request's function returned, if it did so here; else `null`."""
    error: list[Any]
    """Of an abort the facts of `TransactionAborted` and the calls that led there; else the message."""
    reads: list[int]
    writes: list[int]
    """Numbers of the entities that this run has read and written here so far."""
    digest: int
    """Of the writes here so far."""
    calls: list[tuple[int, WireKey, str, int, Number, bool]]
    """Functions that began: operator, key, function, caller, share, whether it is awaited."""


class CachedPart(msgspec.Struct, array_like=True):
    """A loser whose part here is to run again from what its first run left: the tokens as they came then."""

    tid: int
    run: int
    """As in a token."""
    first: int


class CachedEnd(msgspec.Struct, array_like=True):
    """What became of it. It counts if all that its first run did before, at other workers too, was the same again."""

    tid: int
    run: int
    end: str
    """`same`, `aborted`, `diverged`, `changed`; `left`: it did not run, as the answer is full."""
    at: int
    """Which of its stays here ended so, from 0."""
    value: msgspec.Raw
    """As in a stay."""
    error: list[Any]
    """Of an abort, as in a stay."""
    digest: int
    """Of what it wrote here."""
    calls: list[tuple[int, WireKey, str, int, Number, bool]]
    """Of an abort, the functions that began in its stay."""


class EpochStep(msgspec.Struct, array_like=True, tag="step"):
    """Goes on with an epoch."""

    number: int
    epoch: int
    is_replay: bool
    commit: list[int]
    """Transactions whose writes hold, before anything else happens; of the epoch before, if this one is new."""
    tokens: list[TravelToken]
    cached: list[CachedPart]
    """By number; each runs on what those before it wrote here, if they were the same."""


class Stepped(msgspec.Struct, array_like=True, tag="stepped"):
    """What a step gave."""

    number: int
    stays: list[msgspec.Raw]
    """Each a `TokenStay`."""
    cached: list[msgspec.Raw]
    """Each a `CachedEnd`, one for each `CachedPart`."""
    entities: list[tuple[int, WireKey]]
    """Operator and key of those that got a number in this step, in the order of the numbers, from 0 in an epoch."""
    left: int
    """Tokens that did not run, as the answer is full: the next step goes on with them."""
    dirty: int
    dirty_bytes: int
    store_reads: int
    times: list[tuple[int, str, str, int]] = []
    """Of functions that have ended, if they were to be timed: transaction, operator, function and nanoseconds."""


class Welcome(msgspec.Struct, array_like=True, tag="welcome"):
    """The first message: the program."""

    protocol: int
    version: str
    path: list[str]
    """Where Python finds modules."""
    program: bytes
    """Operators, options, and how to open the store: a pickle, as both processes are of one user and program."""


class Meet(msgspec.Struct, array_like=True, tag="meet"):
    """The first message to a worker that has its program itself: what it has to be the same in."""

    protocol: int
    version: str
    program: str
    """Its name."""
    store: str
    """The URL; how it is opened the worker knows."""


class Welcomed(msgspec.Struct, array_like=True, tag="welcomed"):
    """The worker is ready."""

    protocol: int
    version: str
    fingerprint: str


class BeginAt(msgspec.Struct, array_like=True, tag="begin"):
    """Forget all, and begin at a commit."""

    store_epoch: int
    worker: int
    workers: int


class StateReads(msgspec.Struct, array_like=True, tag="reads"):
    """Ask for states."""

    commit: list[int]
    operator: int
    keys: list[WireKey]


class StateRows(msgspec.Struct, array_like=True, tag="rows"):
    """States that are there, as an IPC stream of rows of the operator's table; empty if there are none."""

    rows: bytes
    done: int
    """How many of the keys that were asked for these are of."""


class StateWrites(msgspec.Struct, array_like=True, tag="writes"):
    """Write states, as a batch function did; an IPC stream as in `StateRows`."""

    operator: int
    gone: list[WireKey]
    rows: bytes


class NextCut(msgspec.Struct, array_like=True, tag="cut"):
    """Give what is dirty, in parts; the first one ends what the next commit holds."""

    commit: list[int]
    store_epoch: int
    """The commit that holds what was cut before."""
    is_first: bool


class CutPart(msgspec.Struct, array_like=True, tag="part"):
    """Of an operator: keys that are gone, and rows as an IPC stream."""

    operator: int
    gone: list[WireKey]
    rows: bytes
    is_last: bool
    """Nothing is left; then this part may be empty, with an operator of -1."""


class AllDone(msgspec.Struct, array_like=True, tag="done"):
    """It is done."""


class StillAlive(msgspec.Struct, array_like=True, tag="alive"):
    """The worker works."""


class Hung(msgspec.Struct, array_like=True, tag="hung"):
    """A function cannot be stopped."""


class Refused(msgspec.Struct, array_like=True, tag="refused"):
    """The worker cannot do what it was asked for, and ends, unless it says another thing here."""

    why: str
    is_passing: bool
    """The store did not answer; another attempt may do, and the worker stays."""
    kind: str = ""
    """Of states that cannot be read, the class of what the store says: that is so at any worker, and this one stays."""


ToWorker = Welcome | Meet | BeginAt | EpochStep | StateReads | StateWrites | NextCut
FromWorker = Welcomed | AllDone | Stepped | StateRows | CutPart | StillAlive | Hung | Refused
