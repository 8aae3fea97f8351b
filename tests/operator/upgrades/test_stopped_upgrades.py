"""A store that fails an upgrade of the operator stops those of all others, until its failure is over."""

import pytest

from support.operator.cluster_in_memory import NAMESPACE, ClusterInMemory, cluster_of
from support.operator.resources import DEFAULTS
from tussock.operator.manifests.labels import MANAGED_BY, MANAGED_BY_LABEL, OWNER_KIND_LABEL, OWNER_LABEL
from tussock.operator.planning.turns import UPGRADED
from tussock.operator.planning.words.allowances import Allowance, allowance_of_text
from tussock.operator.planning.words.comparison import APPLIED
from tussock.operator.planning.words.conditions import Reason, conditions, problem_verdict
from tussock.operator.settings import load_settings
from tussock.statestore.errors import InvalidOption

FORMER = DEFAULTS
BAD = DEFAULTS._replace(node_image="registry.example/tussock-node:bad")
GOOD = DEFAULTS._replace(node_image="registry.example/tussock-node:good")
FAILED = f"StateStore {NAMESPACE}/a (ImagePullFailed) has failed it"


def cluster_that_rolls(names: str, parallel: int) -> ClusterInMemory:
    """Stores whose nodes all follow the operator's default, and have rolled out."""
    cluster = cluster_of(names, parallel, meta_image="")
    settle(cluster)
    return cluster


def look(cluster: ClusterInMemory) -> None:
    for key in cluster.keys():  # noqa: SIM118
        cluster.look([key])


def settle(cluster: ClusterInMemory, *broken: str) -> None:
    """Let all turns end, but for the meta nodes of the broken stores, which do not come up with the present image."""
    for _ in range(5 * len(list(cluster.seen.all_of("StateStore")))):
        look(cluster)
        for found in list(cluster.seen.all_of("Deployment")):
            name = found["metadata"]["name"]
            if name.removesuffix("-meta") not in broken:
                cluster.advance("Deployment", name)
            elif cluster.find("Pod", f"{name}-new") is None and image(cluster, name[0]) != FORMER.node_image:
                cannot_pull(cluster, name[0])
    look(cluster)


def cannot_pull(cluster: ClusterInMemory, store: str) -> None:
    """The new pod of a store's meta nodes does not get its image."""
    labels = {MANAGED_BY_LABEL: MANAGED_BY, OWNER_KIND_LABEL: "Meta", OWNER_LABEL: store}
    waiting = {"name": "meta", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
    status = {"phase": "Pending", "containerStatuses": [waiting]}
    metadata = {"name": f"{store}-meta-new", "labels": labels, "creationTimestamp": cluster.stamp()}
    cluster.put("Pod", {"kind": "Pod", "metadata": metadata, "spec": {}, "status": status})
    body = cluster.get("Deployment", f"{store}-meta")
    numbers = {"replicas": 3, "updatedReplicas": 1, "readyReplicas": 2, "observedGeneration": 9}
    cluster.put("Deployment", {**body, "status": numbers})


def give_up(cluster: ClusterInMemory, store: str) -> None:
    """Report that the rollout makes no progress, as Kubernetes does after five minutes."""
    body = cluster.get("Deployment", f"{store}-meta")
    given_up = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    cluster.put("Deployment", {**body, "status": {**body["status"], "conditions": [given_up]}})


def image(cluster: ClusterInMemory, store: str) -> str:
    body = cluster.get("Deployment", f"{store}-meta")
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"]).rpartition(":")[2]


def images(cluster: ClusterInMemory, names: str) -> list[str]:
    return [image(cluster, name) for name in names]


def ready(cluster: ClusterInMemory, kind: str, name: str) -> tuple[str, str]:
    held = cluster.get(kind, name)["status"]["conditions"][0]
    return held["status"], held["reason"]


def upgraded_to_bad(names: str, parallel: int = 1) -> ClusterInMemory:
    cluster = cluster_that_rolls(names, parallel)
    cluster.begin(BAD)
    settle(cluster, "a")
    return cluster


def test_an_image_that_does_not_start_stops_at_the_first_store() -> None:
    """The others serve on with the former one, and say which store has failed and why; so they do after a restart."""
    cluster = upgraded_to_bad("abc")
    former = FORMER.node_image.rpartition(":")[2]
    assert images(cluster, "abc") == ["bad", former, former]
    for _ in range(2):
        for name in "bc":
            assert ready(cluster, "Meta", name) == ("True", "UpgradeStopped")
            assert FAILED in cluster.message("Meta", name)
        cluster.begin(BAD)  # another operator, which knows only the cluster
        settle(cluster, "a")
    assert images(cluster, "abc") == ["bad", former, former]
    assert ready(cluster, "Meta", "a") == ("True", "ImagePullFailed")


def test_what_has_begun_beside_the_failure_ends_and_nothing_more_begins() -> None:
    cluster = upgraded_to_bad("abcde", parallel=3)
    assert [one == "bad" for one in images(cluster, "abcde")] == [True, True, True, False, False]
    assert ready(cluster, "Meta", "b") == ("True", "Ready")
    assert ready(cluster, "Compactor", "b") == ("True", "UpgradeStopped")


def test_it_goes_on_by_itself_when_the_store_serves() -> None:
    """A registry that was away for a moment; afterwards no workload has the note of an upgrade any more."""
    cluster = upgraded_to_bad("abc")
    cluster.remove("Pod", "a-meta-new")
    settle(cluster)
    assert images(cluster, "abc") == ["bad", "bad", "bad"]
    assert [ready(cluster, "Meta", name) for name in "abc"] == [("True", "Ready")] * 3
    for found in cluster.seen.all_of("PodDisruptionBudget"):
        assert UPGRADED not in found["metadata"]["annotations"]


def test_the_next_image_is_tried_on_the_store_that_has_failed() -> None:
    """If that fails, too, it is still one store; if it serves, the others follow."""
    cluster = upgraded_to_bad("zab")
    assert image(cluster, "b") == image(cluster, "z") == FORMER.node_image.rpartition(":")[2]
    cluster.begin(GOOD)
    look(cluster)
    assert [one == "good" for one in images(cluster, "abz")] == [True, False, False]
    cluster.remove("Pod", "a-meta-new")
    settle(cluster)
    assert images(cluster, "abz") == ["good"] * 3


def test_a_failed_store_whose_user_names_an_image_stops_nobody() -> None:
    """Nor does one that is paused, or deleted: somebody has taken it in hand."""
    for change in ("image", "paused", "deleted"):
        cluster = upgraded_to_bad("ab")
        if change == "image":
            cluster.edit("Meta", "a", image="registry.example/tussock-node:own")
        elif change == "paused":
            cluster.edit("StateStore", "a", paused=True)
        else:
            body = cluster.get("StateStore", "a")
            metadata = {**body["metadata"], "deletionTimestamp": cluster.stamp()}
            cluster.put("StateStore", {**body, "metadata": metadata})
        cluster.remove("Pod", "a-meta-new")
        settle(cluster, *(() if change == "image" else "a"))
        assert image(cluster, "b") == "bad", change


def test_stores_that_name_their_image_are_not_concerned() -> None:
    """One that does not serve with its own image stops nobody, and takes no turn; nor does its user's next change."""
    cluster = cluster_that_rolls("abc", 1)
    cluster.edit("Meta", "a", image="registry.example/tussock-node:own")
    cluster.edit("Compactor", "a", image="registry.example/tussock-node:own")
    settle(cluster, "a")
    assert ready(cluster, "Meta", "a")[1] == "ImagePullFailed"
    give_up(cluster, "a")
    cluster.begin(BAD)
    settle(cluster, "a")
    assert images(cluster, "abc") == ["own", "bad", "bad"]


def test_a_store_that_falls_ill_after_its_upgrade_has_not_failed_it() -> None:
    """Its turn is over; and in the next upgrade it comes last, as all that are ill."""
    cluster = cluster_that_rolls("abc", 1)
    cluster.begin(BAD)
    for _ in range(4):
        look(cluster)
        cluster.advance("Deployment", "a-meta")
    look(cluster)
    assert images(cluster, "ab")[0] == "bad"
    settle(cluster)
    cannot_pull(cluster, "a")
    give_up(cluster, "a")
    look(cluster)
    cluster.begin(GOOD)
    look(cluster)
    assert [one == "good" for one in images(cluster, "abc")] == [False, True, False]


@pytest.mark.parametrize(("reason", "goes_on"), [(Reason.VOLUME_FILLING, True), (Reason.BUCKET_UNREACHABLE, False)])
def test_a_disk_that_fills_is_no_failure_of_an_upgrade(reason: Reason, goes_on: bool) -> None:
    """No upgrade fills a disk, and the other stores would wait until it has grown."""
    cluster = cluster_that_rolls("ab", 1)
    server = {"kind": "StatefulSet", "metadata": {"name": "a-minio", "annotations": {APPLIED: "7", UPGRADED: "7"}}}
    cluster.put("StatefulSet", {**server, "spec": {"replicas": 1}, "status": {"readyReplicas": 1}})
    verdict = problem_verdict(reason, "Words.", serving=True)
    status = {"obstacle": "", "conditions": conditions((), verdict, 1, cluster.now)}
    cluster.put("StateStore", {**cluster.get("StateStore", "a"), "status": status})
    cluster.begin(GOOD)
    settle(cluster)
    assert (image(cluster, "b") == "good") is goes_on


def test_a_repair_of_a_manual_edit_does_not_end_the_stop() -> None:
    cluster = upgraded_to_bad("ab")
    body = cluster.get("Deployment", "a-meta")
    cluster.put("Deployment", {**body, "spec": {**body["spec"], "replicas": 7}})
    settle(cluster, "a")
    assert cluster.get("Deployment", "a-meta")["spec"]["replicas"] != 7
    assert image(cluster, "b") != "bad"


@pytest.mark.parametrize(
    ("text", "total", "number"),
    [("1", 50, 1), ("3", 2, 3), ("10%", 50, 5), ("10%", 59, 5), ("10%", 3, 1), ("100%", 7, 7), ("1000", 1, 1000)],
)
def test_a_number_or_a_percentage_of_all_stores(text: str, total: int, number: int) -> None:
    """A percentage is rounded down, but never to none, with which no upgrade would begin."""
    assert allowance_of_text(text).of(total) == number


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "1001", "-1", "1.5", "ten", "10 %", "%"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="number from 1 to 1000, or a percentage from 1% to 100%"):
        allowance_of_text(text)


def test_the_operator_does_not_start_with_another_text() -> None:
    with pytest.raises(InvalidOption, match=r"--max-unavailable .*: should be a number from 1 to 1000, or a percent"):
        load_settings(["--max-unavailable", "many"], {})


def test_a_percentage_of_the_stores_rolls_at_once() -> None:
    cluster = cluster_that_rolls("abcde", 1)
    cluster.begin(BAD)
    world = cluster.world
    cluster.world = type(world)(**{**vars(world), "max_unavailable": Allowance(40, is_percentage=True)})
    look(cluster)
    assert [one == "bad" for one in images(cluster, "abcde")] == [True, True, False, False, False]
