"""The operator reads the status of a service's node, and copes with nodes that say nothing of use."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from support.applications.serve_process import PROGRAM, ServeProcess
from support.applications.work_process import ProgramProcess, WorkProcess
from support.buckets.minio import free_port
from support.operator.computes import DEFAULTS, at, store
from support.operator.services.service_world import service
from support.waiting import eventually
from tussock.operator.cluster.seen import Key, Seen
from tussock.operator.handlers.compute import COMPUTE
from tussock.operator.handlers.service import NODE_SECONDS
from tussock.operator.handlers.world import World
from tussock.operator.manifests.labels import MANAGED_BY, MANAGED_BY_LABEL, OWNER_KIND_LABEL, OWNER_LABEL
from tussock.operator.planning.service.plan import CHANGING_SECONDS
from tussock.operator.planning.words.allowances import ONE_AT_A_TIME
from tussock.operator.planning.words.facts import NodeFact
from tussock.operator.probes.computes.node import ANSWER_SECONDS, ask_node
from tussock.operator.resources.compute import parse_compute

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LEAST = {"application": "bank", "layer": "flows", "state": "running"}
"""What each layer says, also one that this release does not know."""


def ask(address: str) -> NodeFact:
    return asyncio.run(ask_node(address, None, ""))


def answer_of(handler: Handler, seconds: float = ANSWER_SECONDS) -> NodeFact:
    """What the operator makes of a server's answer."""

    async def run() -> NodeFact:
        app = web.Application()
        app.router.add_get("/status", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            return await ask_node("{}:{}".format(*runner.addresses[0]), None, "", seconds)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def says(body: Any) -> NodeFact:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=body if isinstance(body, bytes) else json.dumps(body).encode())

    return answer_of(handler)


def test_a_node_of_procedures_says_how_it_is(tmp_path: Path) -> None:
    """Name, layer, state and what waits; it has no workers."""
    with ServeProcess((tmp_path / "store").as_uri(), app=f"{PROGRAM}:make") as node:
        found = ask(node.http)
    assert (found.problem, found.layer, found.state, found.workers) == ("", "procedures", "running", 0)
    assert found.application
    assert (found.waiting, found.outstanding, found.uncommitted, found.trouble) == (0, 0, 0, "")


def test_a_program_that_waits_for_its_workers_says_how_many(tmp_path: Path) -> None:
    """Before it takes requests, too."""
    url = (tmp_path / "store").as_uri()
    with ProgramProcess(url, 2) as program, WorkProcess(program.workers_address, url) as worker:
        worker.wait_until_ready()
        eventually(lambda: ask(program.http).workers_joined == 1)
        found = ask(program.http)
    assert (found.application, found.layer, found.state) == ("bank", "functions", "starting")
    assert (found.workers, found.workers_joined) == (2, 1)


def test_any_layer_is_read_by_what_all_have_in_common() -> None:
    """What it says beside that does not matter, and what it leaves out is nothing."""
    assert says({**LEAST, "flows": [{"deep": 1}]}) == NodeFact(application="bank", layer="flows", state="running")


def test_the_first_trouble_of_feeds_and_outputs_is_told() -> None:
    """With its name; feeds come before outputs."""
    outputs = {"sums": {"sequence": 1, "trouble": "no broker"}}
    feeds = {"b": {"trouble": "no table"}, "a": {"batches": 1, "rows": 2, "trouble": ""}}
    assert says({**LEAST, "feeds": feeds, "outputs": outputs}).trouble == "Feed b: no table"
    assert says({**LEAST, "feeds": {}, "outputs": outputs}).trouble == "Output sums: no broker"


def test_what_a_node_says_is_bounded() -> None:
    """A user's code is behind it, and the status of an object in the cluster must stay small."""
    huge = dict.fromkeys(("application", "layer", "state", "version"), "x" * 10000)
    numbers = dict.fromkeys(("workers", "waiting", "outstanding", "uncommitted"), 10**15)
    found = says({**huge, **numbers, "workers_joined": -5, "feeds": {"f": {"trouble": "y" * 10_000}}})
    texts = (found.application, found.layer, found.state, found.version, found.trouble)
    assert [len(text) for text in texts] == [300, 100, 100, 100, 1000]
    assert (found.workers, found.workers_joined, found.waiting) == (2**31 - 1, 0, 2**31 - 1)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff\xfe", b'{"application": 7}', json.dumps({"application": "a"}).encode()]
)
def test_an_answer_that_is_no_status_is_a_problem(body: bytes) -> None:
    """And no error of the operator."""
    found = says(body)
    assert found.problem
    assert not found.is_blind
    assert found._replace(problem="") == NodeFact()


def test_an_answer_without_end_is_cut_off() -> None:
    """Neither its length nor its time is the node's to choose."""

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(9):
            await response.write(b" " * (1 << 20))
        return response

    assert "more than 8 MiB" in answer_of(endless).problem

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    assert answer_of(silent, 0.2).is_blind


def test_refusals_and_redirects_are_problems() -> None:
    """A redirect might lead anywhere in the cluster."""

    async def refuses(_: web.Request) -> web.Response:
        return web.Response(status=401)

    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/")

    assert "answered 401 Unauthorized." in answer_of(refuses).problem
    assert "answered 302 Found." in answer_of(elsewhere).problem


def test_a_node_that_is_not_there_is_no_error() -> None:
    """It may have ended this moment."""
    found = ask(f"127.0.0.1:{free_port()}")
    assert "refused" in found.problem or "Connect" in found.problem
    assert not found.is_blind


class NotedProbes:
    """Stands in for `Probes`: has one answer, and notes how often it is to be asked again."""

    def __init__(self, known: NodeFact | None) -> None:
        self._known = known
        self.seconds: list[float] = []

    def latest_fact(self, _owner: Key, _about: object) -> NodeFact | None:
        return self._known

    def fact(self, _owner: Key, _about: object, _run: object, every_seconds: float) -> NodeFact | None:
        self.seconds.append(every_seconds)
        return self._known


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        pytest.param(None, CHANGING_SECONDS, id="not asked yet"),
        pytest.param(NodeFact(workers=2, workers_joined=2), NODE_SECONDS, id="as wanted"),
        pytest.param(NodeFact(workers=3, workers_joined=3), CHANGING_SECONDS, id="scaled"),
        pytest.param(NodeFact(workers=2, workers_joined=1), CHANGING_SECONDS, id="a worker is missing"),
        pytest.param(NodeFact(workers=2, workers_joined=3), CHANGING_SECONDS, id="a spare one goes"),
        pytest.param(NodeFact("no route."), CHANGING_SECONDS, id="silent"),
    ],
)
def test_a_node_that_changes_is_asked_more_often(known: NodeFact | None, seconds: float) -> None:
    """Each answer with other counts writes the status; a smaller number of workers waits for one."""
    seen, probes, job = Seen(), NotedProbes(known), service(workers=2)
    labels = {MANAGED_BY_LABEL: MANAGED_BY, OWNER_KIND_LABEL: "Compute", OWNER_LABEL: "x", "tussock.dev/role": "node"}
    metadata = {"name": "x-service-0", "namespace": "team", "uid": "p", "resourceVersion": "1", "labels": labels}
    status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    seen.put("Pod", {"metadata": metadata, "status": status})
    one = store(tls={"mode": "none"})
    one["metadata"]["resourceVersion"] = "1"
    seen.put("StateStore", one)
    # What is asked needs no more of a world.
    parts = {
        "probes": probes,
        "seen": seen,
        "defaults": DEFAULTS,
        "has_cert_manager": False,
        "max_unavailable": ONE_AT_A_TIME,
        "declarations": {},
    }
    world = cast(World, SimpleNamespace(refs=lambda *_: {}, now=lambda: at(0), **parts))
    observed = COMPUTE.observe(world, parse_compute(job), job)
    assert observed.facts.node == known
    assert probes.seconds == [seconds]


def test_the_page_on_services_says_how_often_a_node_is_asked() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "operator" / "services.md"
    assert f"every {NODE_SECONDS:g} seconds" in page.read_text()
