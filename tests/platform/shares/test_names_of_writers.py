"""Names of writers at a service: a writer that brings many leaves some to others, and only an admin forgets any."""

from collections.abc import Iterator

import pytest

from support.service.guarded_meta import GuardedMeta
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.version import bounds
from tussock.statestore.errors import AccessDenied, Fenced, LimitReached


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedMeta]:
    with GuardedMeta(tmp_path_factory.mktemp("names")) as service:
        yield service


@pytest.mark.slow
def test_one_writer_leaves_names_to_others(meta: GuardedMeta) -> None:
    """It brings half of all; then an admin brings one, and forgets some of the writer's, which may bring as many."""
    writer, admin = meta.caller("writer"), meta.caller("admin")
    half = bounds.WRITERS_MAX // 2
    for number in range(half):
        writer.call("OpenWriter", pb.OpenWriterRequest(writer=f"w{number}"))
    with pytest.raises(LimitReached, match="which may bring as many as are free"):
        writer.call("OpenWriter", pb.OpenWriterRequest(writer="one more"))
    assert writer.call("OpenWriter", pb.OpenWriterRequest(writer="w7")).generation == 2
    assert admin.call("OpenWriter", pb.OpenWriterRequest(writer="job-of-alice")).generation == 1
    some = [f"w{number}" for number in range(100)]
    answer = admin.call("ForgetWriters", pb.ForgetWritersRequest(writers=[*some, "nobody"]))
    assert sorted(answer.forgotten) == sorted(some)
    assert writer.call("OpenWriter", pb.OpenWriterRequest(writer="one more")).generation == 3


def test_only_an_admin_forgets_names(meta: GuardedMeta) -> None:
    """A writer could fence every other job, and have its batches committed twice."""
    with pytest.raises(AccessDenied):
        meta.caller("writer").call("ForgetWriters", pb.ForgetWritersRequest(writers=["job"]))


def test_a_job_whose_name_was_forgotten_is_fenced(meta: GuardedMeta) -> None:
    """It is told so, and opens the name anew."""
    with meta.connect("writer") as store:
        table = store.create_table("kv")
        generation = store.open_writer("mine")
        meta.caller("admin").call("ForgetWriters", pb.ForgetWritersRequest(writers=["mine"]))
        epoch = store.new_epoch()
        table.ingest_batch([(b"a", b"1")], epoch)
        with pytest.raises(Fenced, match="was forgotten"):
            store.commit_epoch(epoch, writer="mine", batch_id=1, generation=generation)
        again = store.open_writer("mine")
        assert again > generation
        assert store.commit_epoch(store.new_epoch(), writer="mine", batch_id=1, generation=again)
