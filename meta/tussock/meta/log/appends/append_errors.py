"""What an append that failed tells its callers: whether it happened, and what to do."""

from tussock.statestore.errors import CorruptLog, CorruptObject, ObjectStoreUnavailable, WaitTimeout

__all__ = ["failed_creation", "interruption", "lost_race", "standstill", "unknown_outcome"]


def unknown_outcome(path: str, cause: Exception) -> ObjectStoreUnavailable:
    """The error if the answer was lost and the outcome could not be found out."""
    return ObjectStoreUnavailable(
        f"{path}: the answer to its creation was lost, so the commit, or what else it was, may or may not have "
        f"happened; repeating a commit with the same writer and batch is safe ({cause})"
    )


def failed_creation(path: str, cause: ObjectStoreUnavailable | CorruptObject) -> ObjectStoreUnavailable | CorruptLog:
    """The error if the bucket is sure that it wrote nothing, or cannot as something foreign lies there."""
    if isinstance(cause, CorruptObject):
        return CorruptLog(f"the log cannot go on: {cause}")
    error = ObjectStoreUnavailable(f"{path}: it was not created, so nothing happened; {cause}")
    error.nothing_written = True
    return error


def interruption() -> ObjectStoreUnavailable:
    """The error if the thread that appended for all calls was interrupted."""
    return ObjectStoreUnavailable(
        "the thread that appended to the log was interrupted: the commit may or may not have happened; repeating "
        "it with the same writer and batch is safe"
    )


def standstill(path: str, boundary: int) -> ObjectStoreUnavailable:
    """The error if the entry was created, after a long time, where the log had been truncated already."""
    return ObjectStoreUnavailable(
        f"{path}: this process stood still while it appended, and the log was truncated past the entry meanwhile "
        f"(marker {boundary}): the commit may or may not have happened. Commits that name a writer and a batch can "
        "always be repeated; look at the store before repeating this one"
    )


def lost_race(url: str, seq: int, times: int) -> WaitTimeout:
    """The error if other processes were faster in all attempts."""
    return WaitTimeout(
        f"{url}: other writers were faster {times} times in a row at appending to the log, now at entry {seq}; nothing "
        "was appended, and nothing is wrong with the bucket: try again, with fewer processes that commit for "
        "themselves, or through a meta service"
    )
