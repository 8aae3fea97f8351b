"""Folders of a bucket on a local file system: making them durably, and telling one from another of its name."""

import errno
import os
import stat
from pathlib import Path

from tussock.statestore.buckets.paths import is_path

__all__ = [
    "FOLDER_FLAGS",
    "folders_in",
    "identity_of",
    "make_and_sync",
    "other_than_file",
    "sorted_names",
    "sync_folder",
]

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


def other_than_file(path: Path) -> str:
    """What lies there that is no file, in words; empty for a file, or a link to one, and where nothing lies."""
    try:
        found = path.lstat().st_mode
        if stat.S_ISLNK(found):
            try:
                found = path.stat().st_mode
            except OSError:
                return "a link that leads nowhere"
    except OSError:
        return ""
    if stat.S_ISREG(found):
        return ""
    return "a folder" if stat.S_ISDIR(found) else "a pipe or a device"


def sorted_names(folder: Path, any_names: bool) -> list[str]:
    """Names of objects and, with a `/` behind, of folders: so they sort as the paths that begin with them do."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name + "/" * _is_folder(e) for e in entries if is_path(e.name, any_names=any_names))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return False
        raise
