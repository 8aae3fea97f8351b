"""`kubectl tussock promote`: real meta nodes behind forwarded ports, and pods as the API server knows them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from support.buckets.minio import free_port
from support.operator.plugin.commands import Answer, Kubelets, plugin
from support.operator.plugin.encrypted_store import make_pod
from support.operator.process import Objects, eventually
from support.operator.stores_in_cluster import unprobed_store
from support.service.meta_process import MetaProcess
from tussock.operator.manifests.labels import COMPONENT_LABEL, MANAGED_BY_LABEL, STORE_LABEL

pytestmark = pytest.mark.timeout(240)
LEASE = ("--leader.lease-seconds", "30")


class Replicas:
    """The pods `s-meta-0` and `s-meta-1` of the store `s`, as processes; the first leads."""

    def __init__(self, objects: Objects, folder: Path) -> None:
        self._objects = objects
        self.ports = [free_port(), free_port()]
        self.kubelets = Kubelets(folder)
        self.kubelets.know({f"s-meta-{number}:7370": port for number, port in enumerate(self.ports)})
        objects.apply(unprobed_store("s"))
        self.processes: list[MetaProcess] = []
        for number, port in enumerate(self.ports):
            make_pod(objects, f"s-meta-{number}", f"10.1.0.{number}")
            own = ("--listen", f"127.0.0.1:{port}", "--advertise", f"10.1.0.{number}:7370")
            self.processes.append(MetaProcess((folder / "store").as_uri(), *own, *LEASE))
            if number == 0:
                self.processes[0].wait_for(event="leading")
            self.processes[number].wait_for(event="serving")

    def promote(self, *arguments: str) -> Answer:
        return plugin(self._objects, "promote", *arguments, kubelets=self.kubelets)


@pytest.fixture
def replicas(objects: Objects, tmp_path: Path) -> Iterator[Replicas]:
    found = Replicas(objects, tmp_path)
    yield found
    for process in found.processes:
        process.process.kill()
        process.wait()


def test_the_named_pod_leads(replicas: Replicas) -> None:
    """Long before a lease of 30 seconds ends; it is said once it leads, and once more to who asks again."""
    told: list[Answer] = []

    def is_promoted() -> bool:
        # The leader gets to know a new follower within twenty seconds, and refuses before that.
        told.append(replicas.promote("s", "s-meta-1"))
        return told[-1].returncode == 0

    eventually("a promotion", is_promoted)
    assert told[-1].stdout == "Pod s-meta-1 leads s now, in term 2, in place of s-meta-0.\n"
    for earlier in told[:-1]:
        assert earlier.stderr.startswith("error: leadership was not handed to '10.1.0.1:7370'"), earlier.stderr
        assert len(earlier.stderr.splitlines()) == 1
    assert replicas.processes[1].wait_for(event="leading")["term"] == 2
    again = replicas.promote("s", "s-meta-1")
    assert (again.returncode, again.stdout) == (0, "Pod s-meta-1 leads s already, in term 2.\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("t", "s-meta-0"), "there is no StateStore t in namespace"),
        (("s", "absent"), 'Error from server (NotFound): pods "absent" not found'),
        (("s", "foreign"), "pod foreign is not of StateStore s; see kubectl tussock logs s -c meta"),
        (("s", "other"), "pod other is not of StateStore s"),
        (("s", "s-compactor-0"), "pod s-compactor-0 is no meta node of StateStore s, but of its compactor"),
        (("s", "starting"), "pod starting is not ready, so that it cannot lead; nothing was changed"),
        (
            ("s", "silent"),
            "port 7370 of pod/silent is not forwarded: unable to forward port because pod is not running",
        ),
    ],
)
def test_what_cannot_lead_is_refused(objects: Objects, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """In one line, with exit code 1."""
    objects.apply(unprobed_store("s"))
    make_pod(objects, "foreign", "10.2.0.1", **{MANAGED_BY_LABEL: "me"})
    make_pod(objects, "other", "10.2.0.2", **{STORE_LABEL: "t"})
    make_pod(objects, "s-compactor-0", "10.2.0.3", **{COMPONENT_LABEL: "compactor"})
    make_pod(objects, "starting", "10.2.0.4", ready=False)
    make_pod(objects, "silent", "10.2.0.5")
    told = plugin(objects, "promote", *arguments, kubelets=Kubelets(tmp_path))
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith(f"error: {words}"), told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_a_leader_of_an_earlier_release_is_told(replicas: Replicas) -> None:
    """It does not know the call: nothing has changed."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        replicas.kubelets.know({"s-meta-0:7370": port, "s-meta-1:7370": replicas.ports[1]})
        told = replicas.promote("s", "s-meta-1")
    finally:
        server.stop(None)
    assert told.returncode == 1
    assert told.stderr.startswith("error: the leader is of a release that cannot hand over; upgrade the meta nodes")


def test_a_store_without_a_leader_is_not_promoted(replicas: Replicas, objects: Objects) -> None:
    """The pod that leads is gone, and the other one still names it: nobody could hand over."""
    objects.delete("Pod", "s-meta-0")
    told = replicas.promote("s", "s-meta-1")
    assert told.returncode == 1
    assert told.stderr.startswith(
        "error: StateStore s has no leader that could hand over: pod s-meta-1 knows 10.1.0.0:7370"
    ), told.stderr
