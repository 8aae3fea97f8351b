"""`EncodedSst`: what a writer makes and an uploader takes; a large one of a compaction while it is being made.

Then its bytes are in memory for a moment only, and when the last block is encoded little is left to write and to sync.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from tussock.statestore.base.system import System
from tussock.statestore.contract.records import SstInfo, data_path, meta_path

__all__ = ["EncodedSst", "GrowingBytes"]

_AHEAD = 2
"""How many times more is handed on before the first of it was taken, once somebody takes it."""


class GrowingBytes:
    """The parts of an object: one thread adds them, another one takes them, once."""

    def __init__(self, system: System) -> None:
        self._changed = system.condition()
        self._waiting: deque[Sequence[bytes]] = deque()
        self._is_taken = False
        self._is_whole = False
        self._is_given_up = False

    def add(self, parts: Sequence[bytes]) -> None:
        """Hand on parts; waits while much was handed on that was not taken.

        As long as nobody takes any nothing waits: the threads of an upload may be busy with objects whose makers wait
        for this one.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_given_up or not self._is_taken or len(self._waiting) < _AHEAD)
            if not self._is_given_up:
                self._waiting.append(parts)
                self._changed.notify_all()

    def end(self) -> None:
        """All parts were added."""
        with self._changed:
            self._is_whole = True
            self._changed.notify_all()

    def give_up(self) -> None:
        """Nobody makes them any more, or nobody takes them; does nothing once all were taken."""
        with self._changed:
            self._is_given_up = True
            self._waiting.clear()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        """The parts as they come; raises `RuntimeError` if they are given up before all of them came."""
        with self._changed:
            self._is_taken = True
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_given_up or self._is_whole or len(self._waiting) > 0)
                if self._is_given_up:
                    raise RuntimeError("the object was given up before it was whole")
                if not self._waiting:
                    return
                parts = self._waiting.popleft()
                self._changed.notify_all()
            yield from parts
            # What was taken is not kept while more is made.
            parts = ()


_Describe = Callable[[str], tuple[SstInfo, list[bytes]]]
"""For an id what a version holds of the SST, and the parts of its meta."""


class EncodedSst:
    """An SST in memory, ready to be uploaded under an id that is minted then; a large one may still be made."""

    def __init__(
        self, parts: Sequence[bytes], describe: _Describe | None = None, growing: GrowingBytes | None = None
    ) -> None:
        """`growing` has the data in place of `parts`, and then `whole` brings `describe`."""
        self._parts = parts
        self._describe = describe
        self.growing = growing

    @property
    def is_whole(self) -> bool:
        """Whether all of it has been made."""
        return self._describe is not None

    def whole(self, describe: _Describe) -> None:
        """It has been made."""
        self._describe = describe

    def objects(self, sst_id: str) -> tuple[SstInfo, dict[str, Sequence[bytes]]]:
        """Under that id: what a version holds of the SST, and the parts of each object by its path.

        Of an SST that was uploaded while it was made the object of its data is not among them. Makes the filter, which
        takes some time if the SST is large.
        """
        assert self._describe is not None
        info, meta = self._describe(sst_id)
        if info.meta_in_data:
            return info, {data_path(sst_id): [*self._parts, *meta]}
        if self.growing is not None:
            return info, {meta_path(sst_id): meta}
        return info, {data_path(sst_id): self._parts, meta_path(sst_id): meta}
