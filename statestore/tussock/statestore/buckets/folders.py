"""Folders of a bucket on a local file system: making them durably, and telling one from another of its name."""

import os
from pathlib import Path

__all__ = ["FOLDER_FLAGS", "folders_in", "identity_of", "make_and_sync", "sync_folder"]

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""To open one."""


def identity_of(folder: Path) -> tuple[int, int] | None:
    """What tells it from another folder of its name; `None` if it is not there, or cannot be looked at."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def folders_in(root: Path) -> set[Path]:
    """The folder and those right in it, as far as they are there."""
    try:
        with os.scandir(root) as entries:
            return {root, *(root / entry.name for entry in entries if entry.is_dir())}
    except OSError:
        return set()


def make_and_sync(folder: Path) -> None:
    """Make a folder whose parent is there, durably; one that is there is no error."""
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in it durable."""
    descriptor = os.open(folder, FOLDER_FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
