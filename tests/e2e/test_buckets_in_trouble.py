"""A bucket that is away for a minute, and a full one: the statuses meanwhile, and that they heal by themselves."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from cluster.view.client import Cluster
from support.kubernetes.bucket_users import Bucket, bucket_in
from support.kubernetes.programs_in_pods import minio_pod
from support.kubernetes.watches import ReadyWatch, watched_readiness

AWAY_SECONDS = 60
KINDS = ("tss", "tsm")
WRITES_MAX = 40
"""Statuses of one kind written from the outage to its end. Once there were 70 of each, in two minutes."""
OBJECT = re.compile(r" at 0x[0-9a-f]+|host='")
"""Python's way to write one."""
FILL = """
with open("/data/foreign", "wb", 0) as file:
    try:
        while True:
            file.write(bytes(1 << 16))
    except OSError as error:
        print(error.strerror)
"""
EMPTY = "import os; os.remove('/data/foreign')"


class Trouble(NamedTuple):
    """A store of two meta nodes with rows, whose bucket is harmed, and the statuses since then."""

    bucket: Bucket
    rows: dict[str, object]
    watch: ReadyWatch
    end_watch: Callable[[], None]

    def heal(self, what: str, mend: Callable[[], object]) -> None:
        """Mend it, and wait until all is in order without other help; then all statuses are in the watch."""
        with self.bucket.cluster.phase(f"trouble: {what}, to all in order"):
            mend()
            for kind in KINDS:
                self.bucket.await_reason(f"{kind}/shop", "Ready", status="True")
        self.end_watch()
        assert self.bucket.rows("shop") == self.rows
        assert self.bucket.rows("shop", to=3) != self.rows


@pytest.fixture(scope="module")
def troubles(cluster: Cluster, operator: str, image_names: dict[str, str]) -> Iterator[tuple[Trouble, Trouble, float]]:
    """Two stores, each with its MinIO: the server of the first is away, the disk of the second is full.

    Both begin at once, since each takes its time to be seen; the third value is the moment at which they began.
    """
    with ExitStack() as stack:
        buckets = []
        for small in ("", "200Mi"):
            namespace = stack.enter_context(cluster.namespace("trouble"))
            buckets.append(stack.enter_context(bucket_in(cluster, namespace, image_names, small)))
            cluster.apply(buckets[-1].store("shop", meta={"replicas": 2}), namespace=namespace)
        found = []
        for bucket in buckets:
            bucket.await_reason("tss/shop", "Ready", status="True")
            rows = bucket.rows("shop", to=2)
            watching = stack.enter_context(ExitStack())
            watch = watching.enter_context(watched_readiness(cluster, bucket.namespace, KINDS))
            found.append(Trouble(bucket, rows, watch, watching.close))
        assert "No space left" in beside(buckets[1], FILL)
        buckets[0].kubectl("delete", "pod/minio")
        yield found[0], found[1], time.monotonic()


def beside(bucket: Bucket, program: str) -> str:
    """What a Python program prints that runs beside the server, on its disk."""
    where = ("exec", "minio", f"--namespace={bucket.namespace}", "--container=beside")
    return bucket.cluster.kubectl(*where, "--", "python", "-c", program)


def expect_calm(watch: ReadyWatch) -> None:
    """Assert that `Ready` went once and came once, and that the messages are readable."""
    for kind, seen in watch.seen.items():
        print(kind, *seen, sep="\n  ")
        assert watch.turns(kind) == 2, kind
        assert len(seen) <= WRITES_MAX
    assert not [message for message in watch.messages() if OBJECT.search(message)]


def test_an_outage_of_the_bucket_is_reported_and_heals(
    cluster: Cluster, troubles: tuple[Trouble, Trouble, float], image_names: dict[str, str]
) -> None:
    """`Ready` goes once and comes once, with a message that names the bucket; the rows are there again.

    Story: it went to and fro fourteen times in two minutes, with each answer of the pods' probes.
    """
    away, _, since = troubles
    with cluster.phase("trouble: MinIO away, to the message of store and meta nodes"):
        for kind in KINDS:
            words = ("s3://tussock/shop", away.bucket.server.endpoint)
            away.bucket.await_reason(f"{kind}/shop", "BucketUnreachable", *words, status="False")
    time.sleep(max(0.0, since + AWAY_SECONDS - time.monotonic()))
    away.heal("MinIO back", lambda: cluster.apply(minio_pod(image_names), namespace=away.bucket.namespace))
    expect_calm(away.watch)


def test_a_full_bucket_is_reported_and_heals(cluster: Cluster, troubles: tuple[Trouble, Trouble, float]) -> None:
    """A foreign file fills the disk of its server: the message names bucket and room.

    Story: it read `The meta nodes run and elect a leader`, and nothing was degraded.
    """
    _, full, since = troubles
    for kind in KINDS:
        words = ("s3://tussock/shop", "it is full")
        full.bucket.await_reason(f"{kind}/shop", "BucketNotWritable", *words, status="False")
        held = full.bucket.get(f"{kind}/shop")["status"]["conditions"]
        assert [one["status"] for one in held if one["type"] == "Degraded"] == ["True"]
    cluster.note("trouble: MinIO's disk full, to the message, at most", time.monotonic() - since)
    full.heal("room again", lambda: beside(full.bucket, EMPTY))
    expect_calm(full.watch)
    assert not [message for message in full.watch.messages() if "run and elect a leader" in message]
