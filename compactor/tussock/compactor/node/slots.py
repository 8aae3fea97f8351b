"""Slots: what runs the parts of compaction tasks, one at a time each.

The node is the same whether its slots are processes (`slot_process.py`), which is how N cores help, or run in the
node's own threads as here, which is how a simulation sees them.
"""

from collections.abc import Callable
from typing import Protocol

from tussock.compactor.executor import OUTPUT_SST_BYTES, execute
from tussock.compactor.parts import TaskPart
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.write.uploader import Uploader

__all__ = ["InlineSlot", "Slot", "SlotCrashed"]

META_CACHE_BYTES = 32 << 20
"""Half of it is for the metas of SSTs under compaction; their blocks are not cached."""


class SlotCrashed(Exception):
    """What ran the part is gone (killed, as a rule for want of memory); the slot itself is ready for another."""


class Slot(Protocol):
    """Runs one part at a time, called by one thread."""

    def run(
        self, part: TaskPart, progress: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> tuple[SstInfo, ...]:
        """Do the part; returns its outputs, uploaded.

        `progress` is told rows read, `cancelled` is asked every now and then. Raises `CompactionCancelled`,
        `SlotCrashed`, or what `execute` raises.
        """

    def close(self) -> None:
        """Let go of everything; no part is running."""


class InlineSlot:
    """A slot in the thread that calls it."""

    def __init__(
        self,
        bucket: ObjectStore,
        system: System,
        open_source: Callable[[str], ObjectStore],
        sst_bytes: int = OUTPUT_SST_BYTES,
    ) -> None:
        """`open_source` opens the bucket of a store that this one was cloned from; `sst_bytes` bounds an output."""
        self._sst_bytes = sst_bytes
        self._horizon = ""
        self.sstables = Sstables(bucket, META_CACHE_BYTES, system, open_source)
        self._uploader = Uploader(bucket, system, lambda: self._horizon)

    def run(
        self, part: TaskPart, progress: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> tuple[SstInfo, ...]:
        """Do the part."""
        self._horizon = max(self._horizon, part.gc_horizon)
        return execute(
            self.sstables,
            self._uploader,
            part.spec,
            part.task,
            cancelled=cancelled,
            progress=progress,
            start=part.start,
            end=part.end,
            sst_bytes=self._sst_bytes,
        )

    def close(self) -> None:
        """Stop its threads; the bucket stays its opener's."""
        self._uploader.close()
        self.sstables.close()
