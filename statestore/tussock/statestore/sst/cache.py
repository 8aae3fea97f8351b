"""A cache with a limit in bytes for decoded blocks and SST metas; every read of the store goes through one.

The budget of a hot single-key read is a few microseconds, so a hit is one look-up in a dict and one flag set, with
no lock and no reordering. All order is kept by `put`, under a lock, with the S3-FIFO policy: new values wait in a
small queue; an entry that was hit there by the time it reaches the end moves to the main queue, the others leave and
only their keys are remembered for a while (a value that comes back meanwhile goes to the main queue at once); in the
main queue a value that was hit goes round again. A scan of cold values thus passes through the small queue and
leaves the main one alone, which an LRU list would flush. Source: Yang et al., "FIFO queues are all you need for
cache eviction", SOSP 2023; simplified to one bit per value instead of two.
"""

import threading
from collections import deque
from collections.abc import Collection, Hashable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tussock.statestore.base.process.half_done import mending
from tussock.statestore.errors import InvalidOption

__all__ = ["ByteCache", "CacheStats"]

SMALL_SHARE = 0.1
"""Part of the capacity for values that have not been hit since they came; the paper's measured choice."""


_PLACES_MIN = 64


class CacheStats(NamedTuple):
    """What a cache holds and did. Hits are not counted: that would cost more than the look-up itself."""

    entries: int
    bytes: int
    capacity_bytes: int
    misses: int
    """Approximate when several threads miss at the same moment."""
    evictions: int


class _CacheEntry:
    __slots__ = ("hit", "key", "queue", "size", "value")

    def __init__(self, key: tuple[Hashable, ...], value: object, size: int) -> None:
        self.key = key
        self.value = value
        self.size = size
        self.hit = False
        self.queue: _Queue | None = None
        """Where it waits; `None` once it was taken out."""


class _Queue:
    """Entries in order of arrival, and their bytes."""

    def __init__(self) -> None:
        self._entries: deque[_CacheEntry] = deque()
        self.count = 0
        self.bytes = 0

    def append(self, entry: _CacheEntry) -> None:
        self._entries.append(entry)
        entry.queue = self
        self.count += 1
        self.bytes += entry.size

    def popleft(self) -> _CacheEntry:
        while self._entries[0].queue is not self:
            self._entries.popleft()
        entry = self._entries.popleft()
        self._forget(entry)
        return entry

    def remove(self, entry: _CacheEntry) -> None:
        """Take an entry out wherever it is, in constant time on average: its place goes later, its value at once."""
        self._forget(entry)
        entry.value = None
        if len(self._entries) > 2 * self.count + _PLACES_MIN:
            self._entries = deque(one for one in self._entries if one.queue is self)

    def _forget(self, entry: _CacheEntry) -> None:
        entry.queue = None
        self.count -= 1
        self.bytes -= entry.size


class ByteCache:
    """Values by tuple key, at most `capacity_bytes` of them by the sizes that `put` is told. Thread-safe.

    The first element of a key groups the values that `drop` removes together: an SST's id. The keys remembered after
    eviction are not part of the limit; there are never more of them than bytes of values would fit, counted by the
    sizes of the values that they had.
    """

    def __init__(self, capacity_bytes: int) -> None:
        """`capacity_bytes` may be 0: then nothing is kept."""
        if capacity_bytes < 0:
            raise InvalidOption(f"a cache cannot have {capacity_bytes} bytes; give 0 or more")
        self._capacity = capacity_bytes
        self._small_target = int(capacity_bytes * SMALL_SHARE)
        self._lock = threading.Lock()
        self._entries: dict[tuple[Hashable, ...], _CacheEntry] = {}
        self._small = _Queue()
        self._main = _Queue()
        self._gone: dict[tuple[Hashable, ...], int] = {}
        self._gone_bytes = 0
        self._misses = 0
        self._evictions = 0

    def get(self, key: tuple[Hashable, ...]) -> Any:
        """The value of `key`, or `None`.

        Without the lock: the look-up is one atomic operation of the dict, and an entry is never reused for another
        key, so the value belongs to the key even if another thread evicts it at this moment. The flag may then be
        set on an entry that has left, or cleared by an eviction in the same moment: that costs a refetch at worst.
        """
        entry = self._entries.get(key)
        if entry is None:
            self._misses += 1
            return None
        entry.hit = True
        return entry.value

    def used(self, key: tuple[Hashable, ...]) -> Any:
        """As `get`, but what is not here is no miss: for one of the forms that a value may have come in."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.hit = True
        return entry.value

    def holds(self, keys: Iterable[tuple[Hashable, ...]]) -> list[bool]:
        """Of each key whether its value is here; none counts as used."""
        entries = self._entries
        return [key in entries for key in keys]

    def peek(self, key: tuple[Hashable, ...]) -> Any:
        """As `get`, but without a hit or a miss: for values that are not worth keeping because they were used."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def put(
        self,
        key: tuple[Hashable, ...],
        value: object,
        size: int,
        *,
        instead_of: Collection[tuple[Hashable, ...]] = (),
    ) -> None:
        """Keep `value`, of `size` bytes (1 or more), in place of what `key` had; others are evicted first to make room.

        A value larger than the whole capacity is not kept. The values of the keys `instead_of` go: what is put holds
        them; if one of them was used, so is the new one.
        """
        if size < 1:
            raise InvalidOption(f"the value of {key!r} cannot have {size} bytes; a value has 1 or more")
        with self._changing():
            before = self._entries.get(key)
            same = before is not None and before.size == size
            if before is not None and not same:
                self._discard(before)
            if size > self._capacity:
                return
            used = False
            for held in [self._entries[other] for other in instead_of if other in self._entries]:
                used = used or held.hit or held.queue is self._main
                self._discard(held)
            if before is not None and same:
                before.value = value  # two readers have missed and fetched the same block
                before.hit = before.hit or used
                return
            self._make_room(size)
            known_size = self._gone.pop(key, None)
            if known_size is not None:
                self._gone_bytes -= known_size
            entry = _CacheEntry(key, value, size)
            (self._main if used or known_size is not None else self._small).append(entry)
            self._entries[key] = entry

    def grow(self, key: tuple[Hashable, ...], value: object, more: int) -> None:
        """The value of `key`, if it still is `value`, takes `more` bytes than before; others are evicted for them.

        It counts as used; it goes at once if it became larger than the whole capacity.
        """
        with self._changing():
            entry = self._entries.get(key)
            if entry is None or entry.value is not value:
                return
            if entry.size + more > self._capacity:
                self._discard(entry)
                return
            queue = entry.queue
            assert queue is not None
            entry.hit = True
            entry.size += more
            queue.bytes += more
            self._make_room(0)

    def resize(self, capacity_bytes: int) -> None:
        """Have another capacity from now on, 0 or more; what has no place in a smaller one is evicted."""
        with self._changing():
            self._capacity = capacity_bytes
            self._small_target = int(capacity_bytes * SMALL_SHARE)
            self._make_room(0)
            self._forget_oldest()

    def room(self) -> int:
        """Bytes that can still come without an eviction."""
        return self._capacity - self._small.bytes - self._main.bytes

    def drop(self, groups: Collection[Hashable]) -> None:
        """Remove every value whose key begins with one of `groups`; takes time in proportion to the whole cache."""
        with self._changing():
            for entry in [entry for key, entry in self._entries.items() if key[0] in groups]:
                self._discard(entry)
            for key in [key for key in self._gone if key[0] in groups]:
                self._gone_bytes -= self._gone.pop(key)

    def remove(self, keys: Collection[tuple[Hashable, ...]]) -> None:
        """Remove the values of these keys, as far as they are there."""
        with self._changing():
            for entry in [self._entries[key] for key in keys if key in self._entries]:
                self._discard(entry)

    def clear(self) -> None:
        """Remove everything; the counts of misses and evictions stay."""
        with self._lock:
            self._empty()

    def stats(self) -> CacheStats:
        """Sizes and counts at this moment."""
        with self._lock:
            used = self._small.bytes + self._main.bytes
            return CacheStats(len(self._entries), used, self._capacity, self._misses, self._evictions)

    def _changing(self) -> AbstractContextManager[None]:
        """The lock. An interrupt of the main thread between two steps leaves an empty cache, not a wrong one."""
        return mending(self._lock, self._empty)

    def _empty(self) -> None:
        self._entries.clear()
        self._small = _Queue()
        self._main = _Queue()
        self._gone.clear()
        self._gone_bytes = 0

    def _make_room(self, size: int) -> None:
        # Values may be hit as fast as their flags are cleared here, so second chances are limited to one a value.
        chances = self._main.count + self._small.count
        while self._small.bytes + self._main.bytes + size > self._capacity:
            from_small = bool(self._small.count) and (self._small.bytes > self._small_target or not self._main.count)
            entry = (self._small if from_small else self._main).popleft()
            if entry.hit and chances > 0:
                chances -= 1
                entry.hit = False
                self._main.append(entry)
            else:
                del self._entries[entry.key]
                self._evictions += 1
                if from_small:
                    self._remember(entry)

    def _discard(self, entry: _CacheEntry) -> None:
        """Take out a value that was not evicted, so that its key is not remembered."""
        del self._entries[entry.key]
        queue = entry.queue
        assert queue is not None
        queue.remove(entry)

    def _remember(self, entry: _CacheEntry) -> None:
        self._gone[entry.key] = entry.size
        self._gone_bytes += entry.size
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        while self._gone_bytes > self._capacity:
            oldest = next(iter(self._gone))
            self._gone_bytes -= self._gone.pop(oldest)
