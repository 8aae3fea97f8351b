"""A commit without a writer whose outcome cannot be found out is never repeated under another name."""

import pytest

from support.buckets.faulty_bucket import Call, Fate, FaultyBucket
from support.store.versions import FakeSystem, ModelBucket, request, spec, sst
from tussock.meta.compaction.picker import PickerConfig
from tussock.meta.log.format import base_path, encode_base, marker_path
from tussock.meta.meta_store import MetaStore
from tussock.meta.version.deltas.retention import AdvanceHorizon
from tussock.statestore.errors import ObjectStoreUnavailable, StaleUpload


def no_answers(call: Call) -> Fate:
    """Entries are created but their answers are lost, and they cannot be read back."""
    if call.path.startswith("log/"):
        return Fate.LOSE_ANSWER if call.operation == "create" else Fate.LOSE_REQUEST
    return Fate.PASS


def pass_by(other: MetaStore, bucket: ModelBucket) -> None:
    """Compaction, the garbage horizon and a truncation of the log pass everything that was committed."""
    task = other.own_tasks.claim("kv", manual=True)
    assert task is not None
    other.own_tasks.report(task, [sst(epoch=0, min_epoch=1, max_epoch=2, id="d" * 32)])
    other.log.append(lambda _: ([AdvanceHorizon(horizon="c" * 32)], None))
    seq = other.version().seq
    bucket.create(base_path(seq), encode_base(other.version()))
    bucket.create(marker_path(seq), b"")
    bucket.delete([path for path in bucket.objects if path.startswith("log/") and not path.startswith("log/boundary/")])


def test_a_repeated_commit_of_unknown_outcome_is_refused(bucket: ModelBucket, system: FakeSystem) -> None:
    """On `StaleUpload` the client would upload its rows again, and they would be there twice."""
    faulty = FaultyBucket(bucket)
    stalled, other = MetaStore(faulty, system), MetaStore(bucket, system, config=PickerConfig(base_bytes=1))
    other.create_table(spec())
    other.commit(request(1))
    stalled.refresh()
    mine, fresh = request(2), request(3)
    faulty.script = no_answers
    with pytest.raises(ObjectStoreUnavailable):
        stalled.commit(mine)
    faulty.script = None
    assert other.refresh().max_committed_epoch == 2
    pass_by(other, bucket)
    system.forward(60)
    for _ in range(2):
        with pytest.raises(ObjectStoreUnavailable, match="look at the store"):
            stalled.commit(mine)
    with pytest.raises(StaleUpload):
        stalled.commit(fresh)
