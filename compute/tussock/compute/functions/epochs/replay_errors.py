"""What a replay says that has another result than the run that was recorded, as exactly as the record allows.

The record has a digest of all replies and writes, and by which texts transactions were aborted. So it is known who was
aborted in one of both runs alone. Else it is tried whether what one of them writes now is all that the first run lacks.
"""

from collections.abc import Iterator, Sequence

from tussock.compute.applications.errors import NotDeterministic
from tussock.compute.applications.records import Record
from tussock.compute.functions.batches.abort_texts import by_row
from tussock.compute.functions.batches.batch_run import EndedBatch
from tussock.compute.functions.batches.columns_request import ColumnsRequest
from tussock.compute.functions.epochs.digest import DIGEST_MASK, digest_of, writes_digest
from tussock.compute.functions.epochs.drawn_values import recorded_abort
from tussock.compute.functions.epochs.epoch import EndedEpoch
from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.errors import ReplayDiffers, TransactionAborted

__all__ = ["differs", "other_batch", "other_result"]

NAMES_MAX = 10
_OTHERS = "whether replies or states of others differ, too, the record does not say"
_WAY_OUT = (
    "start the functions that ran then, and stop that program in order, which commits all; then start the changed ones"
)


def differs(one: FunctionTransaction, told: str) -> ReplayDiffers:
    """What is told of a transaction that does not do what it did."""
    return ReplayDiffers(f"transaction {_name(one)}: {told}")


def other_result(record: Record, program: str, ended: EndedEpoch, epoch: int) -> NotDeterministic:
    """Of an epoch, which the replay has counted as number `epoch`: what is known of transactions that differ."""
    aborts = list(_other_aborts(ended))
    if epoch != record.batch_id:
        told = f"it is epoch {epoch} now"
    elif aborts:
        told = f"{_listed(aborts)}; {_OTHERS}"
    else:
        names = [_name(one) for one in [*ended.ended, *ended.deferred]]
        told = _other_writes(record, ended) or (
            "the same ones are aborted, so a reply, a state, or which of them wait for the next epoch is another one "
            f"({_listed(names, ', ')})"
        )
    return NotDeterministic(
        f"record {record.seq} of the input log: epoch {record.batch_id} of program {program!r} had another result, "
        f"states or replies, when it ran first: {told}. Functions have to depend on their arguments, their entities "
        f"and what ctx gives, and may not change between a crash and the next start: {_WAY_OUT}"
    )


def other_batch(
    record: Record, request: ColumnsRequest, ended: EndedBatch | TransactionAborted, epoch: int
) -> NotDeterministic:
    """Of a batch function: what is known of requests that differ."""
    if isinstance(ended, TransactionAborted):
        told = f"it raises {ended.told} now"
    elif epoch != record.batch_id:
        told = f"it ran in epoch {record.batch_id}, which is epoch {epoch} now"
    else:
        told = _other_rows(record, request, ended)
    return NotDeterministic(
        f"record {record.seq} of the input log: batch function {record.name} had another result when it ran first: "
        f"{told}. It has to depend on its batch only, and may not change between a crash and the next start: {_WAY_OUT}"
    )


def _name(one: FunctionTransaction) -> str:
    function, entity, _ = one.request.target
    request_id = one.request.request_id
    asked = "" if request_id is None else f" (request {request_id!r:.50})"
    return f"{one.tid}: {function.operator}.{function.name} of {entity[1]!r:.50}{asked}"


def _listed(names: Sequence[str], between: str = "; ") -> str:
    return between.join(names[:NAMES_MAX]) + (" ..." if len(names) > NAMES_MAX else "")


def _other_aborts(ended: EndedEpoch) -> Iterator[str]:
    """Transactions that were aborted in one of both runs."""
    for one in ended.ended:
        run, before = one.run, recorded_abort(one)
        assert run is not None
        if run.aborted is None and before is not None:
            yield f"{_name(one)} was aborted then ({before!r:.100}), and returns now"
        elif run.aborted is not None and before is None:
            yield f"{_name(one)} is aborted now ({run.aborted.told:.200}), of which the record has nothing"
    for one in ended.deferred:
        if (before := recorded_abort(one)) is not None:
            yield f"{_name(one)} was aborted then ({before!r:.100}), and waits for the next epoch now"


def _other_writes(record: Record, ended: EndedEpoch) -> str:
    """If all replies are the same, and one transaction's writes make the difference: which; else nothing.

    Another result could come to the same digest, by one chance in four billions for each that is tried.
    """
    replies = digest_of(ended.ended, [one.tid for one in ended.deferred], 0)
    assert record.digest is not None
    surplus = (ended.written - (record.digest - replies)) & DIGEST_MASK
    for one in ended.ended:
        assert one.run is not None
        writes = one.run.writes
        parts = [{entity: stored} for entity, stored in writes.items()]
        for part in [*parts, writes] if len(parts) > 1 else parts:
            if writes_digest(one.tid, part) & DIGEST_MASK == surplus:
                functions = {called.target.entity: called.target.function for called in one.run.invocations}
                names = [f"{functions[entity].operator} {entity[1]!r:.50}" for entity in part]
                return (
                    f"replies are the same, and {_name(one)} had not written {_listed(names, ', ')}, which it does now"
                )
    return ""


def _other_rows(record: Record, request: ColumnsRequest, ended: EndedBatch) -> str:
    before, keys = by_row(record.drawn), [key for _, key in request.entities[None]]
    errors = ended.replies.column("error").to_pylist()
    told = []
    for row, (key, error) in enumerate(zip(keys, errors, strict=True)):
        if error is None and row in before:
            told.append(f"request {row + 1}, of {key!r:.50}, was aborted then ({before[row]!r:.100}), and is not now")
        elif error is not None and row not in before:
            told.append(f"request {row + 1}, of {key!r:.50}, is aborted now ({error!r:.100}), which it was not then")
    if told:
        return f"{_listed(told)}; {_OTHERS}"
    names = _listed([f"{key!r:.50}" for key in keys], ", ")
    return f"the same requests are aborted, so a reply or a state is another one (of {names})"
