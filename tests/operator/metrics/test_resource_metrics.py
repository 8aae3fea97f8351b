"""Metrics of resources: made from what is seen at the scrape, gone with their resource, all of them documented."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from support.operator.metrics.shown_resources import START, ShownResources
from tussock.operator.cluster.kinds import RESOURCES
from tussock.operator.planning.words.conditions import Reason, problem_verdict
from tussock.operator.planning.words.model import stamp
from tussock.operator.resource_metrics import UNKNOWN_REASON

DOCS = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
STREAM = {"application": {"file": "/opt/job.py"}, "mode": "Streaming"}


@pytest.fixture
def place() -> ShownResources:
    return ShownResources()


@pytest.mark.parametrize("kind", RESOURCES)
def test_each_resource_says_whether_it_is_ready(place: ShownResources, kind: str) -> None:
    """Of its present spec; a resource without a status is not."""
    place.put(kind, "well")
    place.put(kind, "changed", generation=2)
    place.put(kind, "ill", problem_verdict(Reason.NO_LEADER, "x"))
    place.see({"kind": kind, "metadata": {"name": "new", "generation": 1}})
    expected = {"well": 1, "changed": 0, "ill": 0, "new": 0}
    assert place.values("ready") == {(kind, name): value for name, value in expected.items()}


def test_what_is_wrong_is_told_by_its_reason(place: ShownResources) -> None:
    """Nothing is told of what is well; what still serves can be ready and degraded. Other reasons share one label."""
    place.put("StateStore", "s")
    assert place.values("degraded") == {}
    place.put("StateStore", "s", problem_verdict(Reason.BUCKET_UNREACHABLE, "x", serving=True))
    strange = place.put("Meta", "m", problem_verdict(Reason.NO_LEADER, "x"))
    for one in strange["status"]["conditions"]:
        one["reason"] = "MadeUpByHand"
    place.put("Meta", "m", conditions=strange["status"]["conditions"])
    assert place.values("degraded") == {("StateStore", "s", "BucketUnreachable"): 1, ("Meta", "m", UNKNOWN_REASON): 1}
    assert place.values("ready")["StateStore", "s"] == 1
    place.put("StateStore", "s", problem_verdict(Reason.NO_LEADER, "x"))
    assert ("StateStore", "s", "BucketUnreachable") not in place.values("degraded")


def test_the_lag_of_a_stream_grows_until_it_commits(place: ShownResources) -> None:
    """Before its first commit from its creation on; suspended streams, batches and services have none."""
    place.put("Compute", "stream", spec=STREAM)
    place.put("Compute", "by-default", spec={"application": {"file": "/x"}})
    place.put("Compute", "suspended", spec={**STREAM, "suspend": True})
    place.put("Compute", "batch", spec={**STREAM, "mode": "Batch"})
    place.put("Compute", "service", spec={"service": {"module": "a:b"}, "mode": "Streaming"})
    place.now += timedelta(seconds=90)
    assert place.values("lag_seconds") == {("Compute", "stream"): 90, ("Compute", "by-default"): 90}
    place.put("Compute", "stream", spec=STREAM, committedTime=stamp(place.now))
    place.now += timedelta(seconds=7)
    assert place.values("lag_seconds")["Compute", "stream"] == 7
    place.put("Compute", "stream", spec=STREAM, committedTime=stamp(place.now + timedelta(seconds=5)))
    assert place.values("lag_seconds")["Compute", "stream"] == 0, "a clock that is ahead"


def test_a_schedule_has_the_age_of_its_newest_backup(place: ShownResources) -> None:
    """A backup that is made once grows old by right, so it has none."""
    hourly = {"schedule": "0 * * * *"}
    place.put("StateStoreBackup", "never", spec=hourly)
    place.put("StateStoreBackup", "hourly", spec=hourly, lastBackupTime=stamp(START + timedelta(hours=1)))
    place.put("StateStoreBackup", "once", lastBackupTime=stamp(START))
    place.put("StateStoreBackup", "suspended", spec={**hourly, "suspend": True}, lastBackupTime=stamp(START))
    place.now += timedelta(hours=3)
    assert place.values("backup_age_seconds") == {
        ("StateStoreBackup", "never"): 3 * 3600,
        ("StateStoreBackup", "hourly"): 2 * 3600,
    }


def test_a_destination_has_the_age_of_the_newest_backup_in_it(place: ShownResources) -> None:
    """A newer one that is not copied yet does not count: what protects against the loss of the bucket is as old."""
    spec = {"schedule": "0 * * * *", "destination": {"gcs": {"bucket": "far"}}}
    hours = [{"name": f"b{hour}", "time": stamp(START + timedelta(hours=hour))} for hour in (3, 2, 1)]
    place.put("StateStoreBackup", "never", spec=spec, backups=hours)
    place.put(
        "StateStoreBackup", "late", spec=spec, backups=[hours[0], *({**one, "copied": True} for one in hours[1:])]
    )
    place.put("StateStoreBackup", "deleted", spec=spec, backups=[{**hours[0], "copied": False}])
    place.put("StateStoreBackup", "suspended", spec={**spec, "suspend": True}, backups=hours)
    place.put("StateStoreBackup", "here", spec={"schedule": "0 * * * *"}, backups=hours)
    place.now += timedelta(hours=4)
    assert place.values("copy_age_seconds") == {
        ("StateStoreBackup", "never"): 4 * 3600,
        ("StateStoreBackup", "late"): 2 * 3600,
        ("StateStoreBackup", "deleted"): 4 * 3600,
    }


def test_certificates_and_restarts_are_those_of_the_status_and_of_the_pods(place: ShownResources) -> None:
    ends = START + timedelta(days=90)
    place.put("StateStore", "s", certificatesExpireTime=stamp(ends))
    place.put("Compute", "job", spec=STREAM, certificatesExpireTime=stamp(ends), restarts=4)
    place.put("Meta", "s")
    place.put_pod(("Meta", "s"), "s-1", 2, 1)
    place.put_pod(("Meta", "s"), "s-2", 0)
    assert place.values("certificate_end_timestamp_seconds") == {
        ("StateStore", "s"): ends.timestamp(),
        ("Compute", "job"): ends.timestamp(),
    }
    assert place.values("restarts") == {("Compute", "job"): 4}
    assert place.values("container_restarts") == {("Meta", "s"): 3}


def test_a_job_shows_how_full_its_checkpoint_is(place: ShownResources) -> None:
    """None before its driver has said it."""
    place.put("Compute", "new", spec=STREAM)
    place.put("Compute", "job", spec=STREAM, checkpointUsedPercent=87)
    assert place.values("checkpoint_used_ratio") == {("Compute", "job"): 0.87}


def test_a_managed_object_store_shows_how_full_its_disk_is(place: ShownResources) -> None:
    """None where the server does not say so."""
    place.put("StateStore", "s3")
    place.put("StateStore", "own", diskUsedPercent=91)
    assert place.values("disk_used_ratio") == {("StateStore", "own"): 0.91}


def test_the_series_of_a_deleted_resource_are_gone(place: ShownResources) -> None:
    """At the next scrape, whatever they were."""
    body = place.put(
        "Compute",
        "job",
        problem_verdict(Reason.DRIVER_FAILED, "x"),
        spec=STREAM,
        restarts=1,
        certificatesExpireTime=stamp(START),
    )
    place.put_pod(("Compute", "job"), "job-driver-1", 1)
    samples = [one for family in place.scrape().values() for one in family.samples]
    assert len(samples) == 6
    place.seen.drop("Compute", body)
    assert not [one for family in place.scrape().values() for one in family.samples]


def test_nothing_of_resources_is_shown_by_a_replica_that_does_not_lead(place: ShownResources) -> None:
    """It has seen nothing, so it could only be wrong."""
    place.put("StateStore", "s")
    with place.metrics.showing(place.collector):
        assert b"tussock_resource_ready{" in place.metrics.render()
    assert b"tussock_resource" not in place.metrics.render()


def test_reasons_are_the_only_label_besides_the_resource(place: ShownResources) -> None:
    """A resource has one series of each metric, so series are bounded by resources."""
    for kind in RESOURCES:
        for number in range(3):
            place.put(
                kind, f"x{number}", problem_verdict(Reason.NO_LEADER, "x"), spec={**STREAM, "schedule": "* * * * *"}
            )
    for name, family in place.scrape().items():
        labels = {label for one in family.samples for label in one.labels}
        extra = {"reason"} if name == "tussock_resource_degraded" else set()
        assert labels in (set(), {"kind", "namespace", "name"} | extra), name
        of_resource = [(one.labels["kind"], one.labels["name"]) for one in family.samples]
        assert len(of_resource) == len(set(of_resource)) <= 3 * len(RESOURCES)


def test_every_metric_of_resources_is_documented(place: ShownResources) -> None:
    """`docs/metrics.md` has exactly one row for each, with its type, labels and text; names follow the conventions."""
    found = {}
    for name, family in place.scrape().items():
        labels = ["kind", "name", "namespace"] + ["reason"] * (name == "tussock_resource_degraded")
        shown = f"{name}_total" if family.type == "counter" else name
        found[shown] = (family.type, labels, family.documentation)
        assert re.fullmatch(r"tussock_resource_[a-z]+(_[a-z]+)*", name), name
    rows = re.findall(r"^\| `(tussock_resource\w*)` \| (\w+) \| ([^|]*) \| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    documented = {name: (kind, sorted(re.findall(r"`(\w+)`", labels)), text) for name, kind, labels, text in rows}
    assert documented == found
