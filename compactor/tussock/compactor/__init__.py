"""Compaction: merges SSTs of a table into fewer, larger ones, and forgets what no reader may ask for."""

from tussock.compactor.executor import CompactionCancelled, execute

__all__ = ["CompactionCancelled", "execute"]
