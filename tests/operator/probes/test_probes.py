"""Probes of real meta nodes, over TLS with the certificates that the operator issues; results and rate."""

import asyncio
import base64
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from support.buckets.minio import free_port
from support.operator.computes import conditions
from support.operator.process import eventually
from support.service.meta_process import ServiceProcess
from support.virtual_time import run_in_virtual_time
from tussock.operator.certificates.issue import new_authority
from tussock.operator.certificates.renewal import renew_certificates
from tussock.operator.cluster.errors import ApiError
from tussock.operator.cluster.seen import Key, Seen
from tussock.operator.handlers.inquiries import bucket_fact
from tussock.operator.handlers.world import World
from tussock.operator.manifests.certificates import desired_certificates
from tussock.operator.manifests.settings import Defaults
from tussock.operator.manifests.transport_security import role_patterns, server_name
from tussock.operator.planning.words.facts import BucketFact, PlatformFact
from tussock.operator.probes.cache import Probes
from tussock.operator.probes.platform import Certificates, ask
from tussock.operator.resources.store import parse_store
from tussock.statestore import connect

STORE = parse_store(
    {
        "metadata": {"name": "s", "namespace": "n", "uid": "1"},
        "spec": {"objectStore": {"s3": {"bucket": "b"}}, "tls": {}},
    }
)


class Platform:
    """Two meta nodes on one store, with the operator's certificates in files."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.files = folder
        wanted = desired_certificates(STORE, ["s"], Defaults())
        for manifest in renew_certificates(STORE, wanted, {}, datetime.now(UTC)):
            (folder / manifest["metadata"]["name"]).mkdir()
            for name, data in manifest["data"].items():
                (folder / manifest["metadata"]["name"] / name).write_bytes(base64.b64decode(data))
        roles = [
            argument
            for role, patterns in role_patterns(STORE).items()
            for argument in (f"--tls.roles.{role}", ",".join(patterns))
        ]
        own = folder / "s-meta-tls"
        tls = ["--tls.certificate", str(own / "tls.crt"), "--tls.key", str(own / "tls.key")]
        self.processes = [
            stack.enter_context(
                ServiceProcess(
                    *("meta", "serve", "--store", (folder / "store").as_uri(), "--listen", address),
                    *("--http-listen", "", *tls, "--tls.client-ca", str(own / "ca.crt"), *roles),
                )
            )
            for address in self.addresses
        ]
        for process in self.processes:
            process.wait_for(event="serving")

    def certificates(self, role: str) -> Certificates:
        """The files that a client of that role shows."""
        files = self.files / f"s-client-{role}-tls"
        return Certificates(*((files / name).read_bytes() for name in ("ca.crt", "tls.crt", "tls.key")))

    def options(self, role: str) -> dict[str, str]:
        files = self.files / f"s-client-{role}-tls"
        paths = {"tls_ca": "ca.crt", "tls_cert": "tls.crt", "tls_key": "tls.key"}
        return {name: str(files / file) for name, file in paths.items()} | {"tls_server_name": server_name(STORE)}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with ExitStack() as stack:
        yield Platform(tmp_path_factory.mktemp("platform"), stack)


def test_any_replica_gives_the_facts_of_the_leader(platform: Platform) -> None:
    """The newest epoch, its time, the term and the version, no matter which replica is asked."""
    shown = platform.certificates("reader")
    eventually("a leader", lambda: ask(platform.addresses[0], shown, server_name(STORE)).leader)
    with connect(f"tussock://{','.join(platform.addresses)}", **platform.options("writer")) as store:
        table = store.create_table("t", schema=pa.schema({"k": pa.int64(), "v": pa.int64()}), primary_key=["k"])
        epoch = store.new_epoch()
        table.upsert([{"k": 1, "v": 2}], epoch)
        store.commit_epoch(epoch)
    facts = [
        eventually("the epoch", lambda at=address: _at_epoch(platform, at, epoch)) for address in platform.addresses
    ]
    assert {fact.leader for fact in facts} <= set(platform.addresses)
    assert len({(fact.leader, fact.term) for fact in facts}) == 1
    assert facts[0].leader_ip == "127.0.0.1"
    assert facts[0].committed_ms > 0
    assert facts[0].version[0].isdigit()


def _at_epoch(platform: Platform, address: str, epoch: int) -> object:
    fact = ask(address, platform.certificates("reader"), server_name(STORE))
    return fact if fact.committed_epoch == epoch else None


def test_after_the_death_of_a_leader_the_facts_are_a_followers(platform: Platform) -> None:
    """Story: for 40 s the status had the dead leader, and the age of its last commit."""
    shown = platform.certificates("reader")
    fact = eventually("a leader", lambda: _fact_of_leader(platform, shown))
    leading = platform.addresses.index(fact.leader)
    other = platform.addresses[1 - leading]
    platform.processes[leading].process.kill()
    found = ask(other, shown, server_name(STORE))
    assert found.problem == ""
    assert found.leader in ("", other)
    assert eventually("another leader", lambda: ask(other, shown, server_name(STORE)).leader) == other
    # Only now: a follower reads the log a few times a second, and may not have known the former leader's term yet.
    assert ask(other, shown, server_name(STORE)).term > fact.term
    platform.processes[leading] = platform.processes[1 - leading]
    platform.addresses[leading] = other


def _fact_of_leader(platform: Platform, shown: Certificates) -> PlatformFact | None:
    fact = ask(platform.addresses[0], shown, server_name(STORE))
    return fact if fact.leader else None


def test_refusing_nodes_are_distinguished_from_unreachable_ones(platform: Platform) -> None:
    """A node that only the operator cannot reach may serve all other clients."""
    assert not ask("127.0.0.1:1", None, "").is_blind
    assert not ask(platform.addresses[0], None, "").is_blind, "it speaks TLS only, and is there"
    assert ask("nobody.invalid:7370", None, "").is_blind


def test_an_untrusted_certificate_is_reported_as_a_problem(platform: Platform) -> None:
    """An address without a server is reported, too; neither raises."""
    shown = platform.certificates("reader")
    stranger = shown._replace(ca=new_authority("stranger", datetime.now(UTC), 3600).certificate.encode())
    assert ask(platform.addresses[0], stranger, server_name(STORE)).problem
    assert ask(platform.addresses[0], shown, "another.name").problem
    assert "127.0.0.1:1" in ask("127.0.0.1:1", None, "").problem


OWNER = Key("Meta", "n", "m")


def test_a_fact_is_probed_now_and_then_and_wakes_its_resource() -> None:
    """A pass never waits: it takes known facts, and is repeated when they change."""
    answers = iter(["first", "first", "second"])
    woken: list[Key] = []
    asked = 0

    async def run() -> str:
        nonlocal asked
        asked += 1
        return next(answers)

    async def passes() -> None:
        probes = Probes(woken.append)
        assert probes.fact(OWNER, "x", run, 0.1) is None
        assert probes.fact(OWNER, "x", run, 0.1) is None
        await asyncio.sleep(0.05)
        assert (asked, woken) == (1, [OWNER])
        assert probes.fact(OWNER, "x", run, 0.1) == "first"
        await asyncio.sleep(0.1)
        assert asked == 1
        assert probes.fact(OWNER, "x", run, 0.1) == "first"
        await asyncio.sleep(0.15)
        assert (asked, woken) == (2, [OWNER])
        assert probes.fact(OWNER, "x", run, 0.1) == "first"
        await asyncio.sleep(0.05)
        assert (asked, woken) == (3, [OWNER, OWNER])
        assert probes.latest_fact(OWNER, "x") == "second"
        await probes.close()

    run_in_virtual_time(passes())


def test_a_fact_about_another_question_is_ignored() -> None:
    """For example another version of a secret: facts found with the old one don't count."""

    async def run() -> str:
        return "found"

    async def passes() -> None:
        probes = Probes(lambda _: None)
        probes.fact(OWNER, "version 1", run, 60)
        await asyncio.sleep(0.05)
        assert probes.fact(OWNER, "version 2", run, 60) is None
        await probes.close()

    run_in_virtual_time(passes())


def test_a_failed_probe_keeps_the_last_fact() -> None:
    """It is repeated after the usual time, not at once."""
    asked = 0

    async def run() -> str:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise RuntimeError("a bug")
        return "found"

    async def passes() -> None:
        probes = Probes(lambda _: None)
        for _ in range(3):
            probes.fact(OWNER, "x", run, 0.01)
            await asyncio.sleep(0.05)
        assert probes.latest_fact(OWNER, "x") == "found"
        assert asked == 3
        await probes.close()

    run_in_virtual_time(passes())


@pytest.mark.parametrize(("error", "shown"), [(ValueError("a-secret"), False), (ApiError("the server says"), True)])
def test_an_unforeseen_error_is_logged_without_its_text(
    error: Exception, shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows what it repeats; where it comes from is enough to find it. Our own errors have no secrets."""

    async def run() -> str:
        raise error

    async def passes() -> None:
        probes = Probes(lambda _: None)
        probes.fact(OWNER, "x", run, 1.0)
        await asyncio.sleep(0.05)
        await probes.close()

    run_in_virtual_time(passes())
    told = caplog.text
    assert "a probe failed" in told
    assert (str(error) in told) is shown
    assert shown or "ValueError in line" in told


S3_WITH_KEYS = {"objectStore": {"s3": {"bucket": "b", "credentialsSecret": {"name": "keys"}}}}


class Asking:
    """Stands in for `Probes`: counts its calls, and returns given facts."""

    def __init__(self, latest: object = None) -> None:
        self.every_seconds: list[float] = []
        self._latest = latest

    def latest_fact(self, _owner: Key, _about: object) -> object:
        return self._latest

    def fact(self, _owner: Key, _about: object, _run: object, every_seconds: float) -> None:
        self.every_seconds.append(every_seconds)


def test_a_managed_bucket_is_checked_once_its_server_is_ready() -> None:
    """Checked earlier, it would count as unreachable while the server starts."""
    body = {"metadata": {"name": "s", "namespace": "n", "uid": "1"}, "spec": {"objectStore": {"managed": {}}}}
    probes, seen = Asking(), Seen()
    # What is asked needs no more of a world.
    world = cast(World, SimpleNamespace(probes=probes, seen=seen))
    for version, status in enumerate(({}, {"replicas": 1}, {"replicas": 1, "readyReplicas": 1})):
        metadata = {"name": "s-minio", "namespace": "n", "uid": "2", "resourceVersion": str(version)}
        assert probes.every_seconds == []
        seen.put("StatefulSet", {"metadata": metadata, "status": status})
        assert bucket_fact(world, parse_store(body)) is None
    assert probes.every_seconds == [1.0]


def test_without_a_leader_the_bucket_is_soon_tested_by_a_write() -> None:
    """A full bucket can be read, and has its marker: only a write shows that it is full."""
    store = parse_store({"metadata": {"name": "s", "namespace": "n", "uid": "1"}, "spec": S3_WITH_KEYS})
    probes, seen = Asking(BucketFact(None)), Seen()
    world = cast(World, SimpleNamespace(probes=probes, seen=seen))
    for version, (ready, status) in enumerate(((True, {"term": 3}), (False, {}), (False, {"term": 3}))):
        metadata = {"name": "s", "namespace": "n", "uid": "2", "resourceVersion": str(version + 1)}
        held = conditions(ready=ready)
        meta = {"metadata": metadata, "spec": {"storeRef": {"name": "s"}}, "status": {**status, "conditions": held}}
        seen.put("Meta", meta)
        bucket_fact(world, store)
    assert probes.every_seconds == [30.0, 30.0, 8.0]
