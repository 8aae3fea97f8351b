"""The few reaches of the tests into what the product keeps to itself, each with the reason why it stays.

Every other test uses the public face; `test_tidy.py` finds those that do not. A change inside the product is followed
here, and in no test.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from support.store.stores import InlineExecutor
from tussock.meta.log.appends.group_commit import CallQueue
from tussock.statestore import Checkpoint, StateStore
from tussock.statestore.base.together import Together
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.read import key_reader
from tussock.statestore.sst.lookups import lookup_many, wanted_keys
from tussock.statestore.sst.short_scan import first_rows

# --- An open store ----------------------------------------------------------------------------------------------------


def backend(store: StateStore) -> Any:
    """The part that keeps the version: tests claim, fail and repeat single steps of it, which a user cannot."""
    return store._parts.backend


def version(store: StateStore) -> Any:
    """The version that the store knows; the public `version()` makes a request, and tests count requests."""
    return store._parts.backend.version()


def backend_of_table(table: Any) -> Any:
    """The backend of a table, whose store was lost in a crash."""
    return table._parts.backend


def parts(store: StateStore) -> dict[str, Any]:
    """All parts of an open store: none of them may show a secret when it is printed."""
    return vars(store._parts)


def bucket(store: StateStore) -> Any:
    """The bucket that the store opened by its URL: tests damage and list objects that no URL reaches, as in memory."""
    return store._parts.bucket


def buffer(store: StateStore) -> Any:
    """The uncommitted rows: their runs and bytes show only in memory and time otherwise."""
    return store._parts.writes.buffer


def requests(store: StateStore) -> Any:
    """The counts of requests as they are now, by caller; tests compute the difference of two."""
    return store._parts.requests


def sstables(store: StateStore) -> Any:
    """The cache of the store's reads: tests check its content after a read."""
    return store._parts.sstables


def uploader(store: StateStore) -> Any:
    """The uploader of the store's commits: a test fills its threads."""
    return store._parts.writes.uploader


def system(store: StateStore) -> Any:
    """The clocks that the store was opened with, where a fixture opened it."""
    return store._parts.system


def table_runs(store: StateStore, table: Any) -> Any:
    """The runs that a read of the table searches: only their identity shows that they are built once."""
    return store._parts.views.committed(table.spec.id, table.name).runs


def writes_at(store: StateStore) -> Iterable[int]:
    """The epochs with rows that are not committed."""
    return store._parts.writes.buffer._epochs


def spilled_runs(store: StateStore) -> Iterator[Any]:
    """The runs of uncommitted rows that lie in the bucket."""
    for one in store._parts.writes.buffer._epochs.values():
        for runs in one.runs.values():
            yield from (run for run in runs if run.spilled_to)


def pin_info(snapshot: Any) -> PinInfo:
    """The lease behind a snapshot, with the log entry whose tables it shows: the model needs both."""
    info: PinInfo = snapshot._pin.info
    return info


def lapse(snapshot: Any) -> None:
    """Let the snapshot's lease run out at once, as after a long sleep of the machine."""
    snapshot._pin._pin.deadline = 0.0


@contextmanager
def before_each_view(store: StateStore, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` before each read takes its version: there is no lock or request for which a test could wait."""
    views: Any = store._parts.views
    committed = views.committed

    def after_act(*args: Any, **options: Any) -> Any:
        act()
        return committed(*args, **options)

    views.committed = after_act
    try:
        yield
    finally:
        del views.committed


@contextmanager
def iterators_alone() -> Iterator[None]:
    """Short scans begin with no blocks at hand: what the iterators give is what they have to give as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_reader, "first_rows", lambda *_: None)
        yield


@contextmanager
def short_scans() -> Iterator[list[int]]:
    """The number of short scans that began with blocks at hand: a comparison of those that did not shows nothing."""
    begun = [0]

    def counted(*arguments: Any) -> Any:
        found = first_rows(*arguments)
        begun[0] += found is not None
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_reader, "first_rows", counted)
        yield begun


# --- Threads ----------------------------------------------------------------------------------------------------------


def pool(part: Any) -> Any:
    """The threads of a part that reads or uploads: a test keeps them busy to catch a call in the middle."""
    return part._pool


def _users_of_threads(store: StateStore) -> tuple[Any, ...]:
    return (uploader(store), sstables(store), *execution_tools(backend(store)))


def without_threads(store: StateStore) -> StateStore:
    """The store with its uploads and prefetches done in the caller's thread, and pins renewed by the test only.

    For runs that have to be the same again from their seed; threads start by themselves otherwise.
    """
    pin_keeper(backend(store))._renew_seconds = 3600.0
    for part in _users_of_threads(store):
        part._pool._pool.shutdown()
        part._pool._pool = InlineExecutor()
    return store


def kill(store: StateStore) -> None:
    """End a store's threads as the death of its process would: nothing is released, nothing is written."""
    keeper = pin_keeper(backend(store))
    with keeper._changed:
        keeper._held.clear()
        keeper._changed.notify_all()
    backend(store)._leases.close()
    for part in _users_of_threads(store):
        part.close()


# --- The log ----------------------------------------------------------------------------------------------------------


def append_queue(log: Any) -> CallQueue:
    """The calls that wait for an entry: a test lets them share one, and nothing else shows that they wait."""
    queue: CallQueue = log._queue
    return queue


# --- The embedded backend ---------------------------------------------------------------------------------------------


def pin_keeper(embedded: Any) -> Any:
    """The part that renews the pins: a test renews them at the moments that it decides."""
    return embedded.meta.pins


def set_pin_lease(embedded: Any, seconds: float) -> None:
    """Make pins last `seconds`: the simulator lets them lapse, which a minute's lease would make too rare."""
    keeper = embedded.meta.pins
    keeper._lease_seconds, keeper._renew_seconds = seconds, seconds / 3


def renew_pins(any_backend: Any) -> None:
    """Renew the pins, as a store with any backend does every few seconds while it has some."""
    if hasattr(any_backend, "meta"):
        any_backend.meta.pins.renew()
    else:
        any_backend._pins.release_forgotten()


def version_log(embedded: Any) -> Any:
    """The log: a test checks what a process knows of it."""
    return embedded.meta.log


def forget_version(embedded: Any) -> None:
    """Make the process read the log from its newest snapshot again, as after a start."""
    embedded.meta._asked_at -= 1
    embedded.meta.log._version = None


def base_every(log: Any, entries: int) -> None:
    """Write a snapshot of the version every `entries` entries: short histories have some, too."""
    log._base_every = entries


def work(embedded: Any) -> bool:
    """Do one turn of the background thread in the test's thread; returns whether there was something to do."""
    did: bool = embedded._work()
    return did


def step(embedded: Any) -> bool:
    """Do the compactions that the background thread would do next, if there are any to do."""
    did: bool = embedded._step(embedded.meta.own_tasks.claim_together())
    return did


def execute(embedded: Any, task: Any) -> bool:
    """Run a task that the test claimed: meanwhile time passes, or other processes act."""
    done: bool = embedded._execute(task)
    return done


def execution_tools(embedded: Any) -> tuple[Any, Any]:
    """The parts with which a task of the embedded store reads and writes SSTs."""
    return embedded._sstables, embedded._uploader


def is_closing(embedded: Any) -> bool:
    """Whether `close` has begun: nothing of it is visible before its end."""
    closing: bool = embedded._is_closing()
    return closing


def worker(embedded: Any) -> Any:
    """The background thread, which a test nudges or keeps from nudges."""
    return embedded._worker


@contextmanager
def without_nudges(embedded: Any) -> Iterator[None]:
    """Let no commit wake the background thread."""
    embedded._worker.nudge = lambda: None
    try:
        yield
    finally:
        del embedded._worker.nudge


def waiting_event(embedded: Any) -> threading.Event:
    """An event that is set when the store first waits for the end of another's task."""
    awaited = threading.Event()
    await_end = embedded._await_end

    def awaiting(*args: Any) -> None:
        awaited.set()
        await_end(*args)

    embedded._await_end = awaiting
    return awaited


# --- A platform and its clients ---------------------------------------------------------------------------------------


def commit_messages(backend: Any) -> Together[Any]:
    """The commits that wait for their message: a test lets them share one, and nothing else shows that they wait."""
    queue: Together[Any] = backend._commits._messages._together
    return queue


def connection(owner: Any) -> Any:
    """The session of a client or a compactor node: tests send what no client of Tussock would send."""
    return owner._connection


def silence(owner: Any) -> None:
    """Let a client send no heartbeats and no goodbye any more, as if its machine had died."""
    owner._connection._closed = True


def add_address(owner: Any, address: str) -> None:
    """Give a client one more replica: its URL was written before all addresses were known."""
    owner._connection._addresses.append(address)


def transport(session: Any, address: str) -> Any:
    """The channel to a replica, without the session's additions to a call: for requests in another name."""
    return session._transport(address)


def forget_message_limit(session: Any) -> None:
    """Let the client forget the limit of messages, as if it had been lowered since the client asked."""
    session._session.opened.message_bytes_max = 0


def feed(node: Any) -> Any:
    """The bytes that a replica pushes to its clients; a client shows only the versions made of them."""
    return node._feed


def assignments(node: Any) -> Any:
    """The compactor of each task, as the leader knows it before the node reports again."""
    return node.leadership.scheduler._schedule


def end_session(leadership: Any, session_id: str, reason: str) -> None:
    """End a session at once; its lapse would take a time that depends on the machine."""
    leadership._end(leadership.sessions.get(session_id), reason)


def uploads_in_flight(leadership: Any) -> Any:
    """The uploads that the leader's vacuum has to spare: a wrong vacuum would show it only by chance."""
    return leadership._in_flight()


def kill_threads(node: Any) -> None:
    """Put an ended thread in the place of a compactor node's own: a defect of Tussock that no input brings about."""
    node._threads = [SimpleNamespace(is_alive=lambda: False)]


def join_task(node: Any, name: str, seconds: float) -> None:
    """Wait for the end of one of a replica's threads, which its probe has to notice."""
    node._tasks[name].join(seconds)


# --- Checkpoints ------------------------------------------------------------------------------------------------------


def epoch_of(checkpoint: Checkpoint) -> int:
    """The epoch of the participant; asking by `epoch` means that the worker is ready, which a test may not want."""
    return checkpoint._state.open_epoch


def holds_a_barrier_up(checkpoint: Checkpoint) -> bool:
    """Whether a barrier has come to the participant, and waits until its worker is ready."""
    return bool(checkpoint._state.todos) and checkpoint._state.todos[0].what == "barrier"


def generation_of(checkpoint: Checkpoint) -> int:
    """The generation of the participant: a request in its name has to show it."""
    return checkpoint._state.generation


def deafen(client_backend: Any, job: str, name: str, checkpoint: Any) -> Callable[[Any], None]:
    """Let no event reach the participant, as while its process sleeps; returns the function that delivers them."""
    receive: Callable[[Any], None] = checkpoint._receive
    checkpoint._receive = lambda _: None
    client_backend._channels._inboxes[job] = (name, checkpoint._receive)
    return receive


# --- Spark ------------------------------------------------------------------------------------------------------------


def release_cursor(reader: Any) -> None:
    """Release what a change stream holds, as the end of its lease does once the process is dead."""
    if reader._cursor is not None and reader._cursor._snapshot is not None:
        reader._cursor._snapshot.close()


def forget_stream_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next listener count from zero: a process counts all its streams together until it ends."""
    monkeypatch.setattr("tussock.compute.spark.batches.listener._shared", None)


# --- Sizes that are no limits -----------------------------------------------------------------------------------------


def look_up_in_other_ways(monkeypatch: pytest.MonkeyPatch, choose: Callable[[int], int]) -> None:
    """Let other numbers of keys decide between the ways of one look-up of many keys, whose results are the same.

    A parameter for each would cost every look-up something, and nobody but the test that compares them could use it.
    """
    here = (
        "_AS_SINGLE_GETS",
        "_MANY_KEYS",
        "_MANY_KEYS_OF_ONE_WIDTH",
        "_MANY_KEYS_OF_SEVERAL_WIDTHS",
        "_HASHED_TOGETHER",
    )
    for module, way in [*((lookup_many, name) for name in here), (wanted_keys, "FEW_KEYS")]:
        monkeypatch.setattr(module, way, choose(getattr(module, way)))


def shrink_arrow_arrays(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Let Arrow's arrays hold that many bytes for keys: their 2 GiB are a fact of Arrow, and take too long to fill."""
    monkeypatch.setattr("tussock.statestore.keys.codecs.ARROW_BYTES_MAX", nbytes)


# --- What may not grow ------------------------------------------------------------------------------------------------
# Memory that is kept for too long shows in no answer, so these count what is held.


def small_entries(cache: Any) -> int:
    """The places that a byte cache keeps for its small values, also of removed ones."""
    return len(cache._small._entries)


def chunks(chunked: Any) -> Any:
    """The chunks of a sequence, which two versions of it share."""
    return chunked._chunks


def callers_known(limits: Any) -> int:
    """Callers whose rate is kept."""
    return len(limits._buckets)


def tables_known(sums: Any) -> Any:
    """Tables whose sums are kept."""
    return sums._known


def seconds_kept(rates: Any) -> Any:
    """The seconds for which rates are kept."""
    return rates._seconds


def reads_counted(sides: Any) -> int:
    """Tables and epochs whose looked-up keys are counted."""
    return len(sides._key_counts)


# --- Applications -----------------------------------------------------------------------------------------------------


@contextmanager
def input_logs_in(open_log: Callable[[str], Any]) -> Iterator[None]:
    """Runners open the place of their input log by this: no URL reaches a bucket that fails, or that dies with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tussock.compute.applications.durability.recovery.open_bucket", lambda url, **_: open_log(url))
        yield
