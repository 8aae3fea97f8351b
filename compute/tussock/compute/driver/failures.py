"""What a driver's pod leaves in its status: why its application failed, and the newest epoch that it committed.

The user's own error comes first, whatever is wrapped around it.

Between a function of `foreachBatch` that raises and the driver's end lie the bridge to the JVM and Spark's own errors.
Their text begins with ids and ends with a stack trace, and the error that helps stands somewhere in the middle.
"""

import re
import traceback

from tussock.compute.spark.batches.commits import Commit

__all__ = ["OUTAGE", "cause_of", "committed_line", "is_outage", "termination_message"]

OUTAGE = 75
"""Exit code of a program that failed because the store was away, not through its own fault; 75 is `EX_TEMPFAIL`."""

CAUSE_CHARACTERS_MAX = 1000
MESSAGE_BYTES_MAX = 3900
"""A kubelet accepts 4096, and the line of the newest commit has at most 90."""

_TRACEBACK = "Traceback (most recent call last):"
_OF_JVM = re.compile(r"^: (?P<own>\S.*)$", re.MULTILINE)
_CAUSED_BY = re.compile(r"^Caused by: (?P<cause>\S.*)$", re.MULTILINE)
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+(?::|$))")
_AWAY = frozenset({"MetaUnavailable", "NotLeader", "ObjectStoreUnavailable", "SessionExpired"})


def cause_of(error: BaseException) -> str:
    """An error in one line of at most 1000 characters: type and text of the innermost exception in it.

    That is the last one of the last Python traceback in its text. Without a traceback it is, for an error of the JVM,
    its text and the last `Caused by`, and otherwise the error itself.
    """
    said = str(error)
    _, found, rest = said.rpartition(_TRACEBACK)
    if found and (raised := _exception_line(rest)):
        return _MODULE.sub("", raised)[:CAUSE_CHARACTERS_MAX]
    own = _OF_JVM.search(said)
    if own:
        causes = [cause["cause"].strip() for cause in _CAUSED_BY.finditer(said)]
        told = own["own"].strip()
        also = f"; caused by {causes[-1]}" if causes and causes[-1] not in told else ""
        return f"{told}{also}"[:CAUSE_CHARACTERS_MAX]
    first = next((line.strip() for line in said.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}"[:CAUSE_CHARACTERS_MAX]


def _exception_line(rest: str) -> str:
    """The line with the exception that ends a traceback: the first unindented one; empty if there is none."""
    lines = rest.splitlines()[1:]
    return next((line.strip() for line in lines if line.strip() and not line[:1].isspace()), "")


def is_outage(cause: str) -> bool:
    """Whether the program failed because of the store, judged by the cause that `cause_of` found."""
    return cause.partition(":")[0] in _AWAY


def termination_message(error: BaseException) -> str:
    """What a pod leaves in its status: the cause in the first line, an empty line, and the end of the traceback.

    Pods of earlier runs are gone, and their logs with them; this stays in the status of the job.
    """
    cause = cause_of(error)
    trace = "".join(traceback.format_exception(error)).encode()
    room = MESSAGE_BYTES_MAX - len(cause.encode()) - 2
    return f"{cause}\n\n{trace[-room:].decode(errors='ignore')}"


def committed_line(commit: Commit) -> str:
    """The last line of what a pod leaves in its status: its newest commit. The operator reads it."""
    return f"\ncommitted epoch={commit.epoch} batch={commit.batch_id} ms={commit.noted_ms}\n"
