"""The HTTP port of a replica, with a real client over a real socket."""

import asyncio
import gzip
import hashlib
import json
import re
import threading
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace
from yarl import URL

from support import inside
from support.service.statuses import bare_status
from tussock.meta.node.auth.authentication import Presented
from tussock.meta.node.auth.caller import ANYONE, Caller
from tussock.meta.node.wire.http_port import start_http
from tussock.meta.rpc.methods import Role
from tussock.meta.server.node import MetaNode
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.meta.server.status.document import ServiceStatus
from tussock.meta.server.wire.http_server import make_app
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import RequestCounts, open_bucket
from tussock.statestore.errors import Unauthenticated

CONSOLE = Path(str(resources.files("tussock.meta.server"))) / "console"
SECRET = "tk-4f1a"
OPEN = ["/", "/static/console.js", "/static/vendor/uPlot.iife.min.js", "/healthz", "/readyz"]
CLOSED = ["/api/status", "/metrics"]

Client = aiohttp.ClientSession


def check(presented: Presented) -> Caller:
    """Authenticate one reader's token, and one whose roles were removed."""
    if presented.authorization == f"Bearer {SECRET}":
        return Caller("ann", Role.READER)
    if presented.authorization == "Bearer none":
        return Caller("bob", Role(0))
    raise Unauthenticated("the bearer token is not known here")


def ask(
    questions: Callable[[Client], Awaitable[None]],
    status: Callable[[], ServiceStatus] = bare_status,
    authenticate: Callable[[Presented], Caller] = lambda _: ANYONE,
    defect: Callable[[], str] = str,
) -> None:
    """Serve, and call."""

    async def body() -> None:
        app = make_app(status, lambda: b"# HELP up Up.\nup 1\n", authenticate, defect)
        runner, port = await start_http(app, "127.0.0.1", 0)
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", auto_decompress=False) as client:
                await questions(client)
        finally:
            await runner.cleanup()

    asyncio.run(asyncio.wait_for(body(), 30))


def test_status_is_the_struct_as_json() -> None:
    """`/api/status` returns the whole status, integers exact, never cached, compressed if the client accepts it."""
    told = bare_status()
    told = replace(told, version=replace(told.version, max_committed_epoch=2**63 - 1))

    async def questions(client: Client) -> None:
        for encoding in ("identity", "gzip"):
            async with client.get("/api/status", headers={"Accept-Encoding": encoding}) as response:
                body = await response.read()
                if encoding == "gzip":
                    body = gzip.decompress(body)
                assert msgspec.json.decode(body, type=ServiceStatus) == told
                assert response.content_type == "application/json"
                assert response.headers["Cache-Control"] == "no-store"

    ask(questions, lambda: told)


@pytest.mark.parametrize("path", [*OPEN, *CLOSED, "/nothing", "/static/nothing"])
def test_every_answer_forbids_what_the_page_does_not_need(path: str) -> None:
    """Nothing inline, nothing from elsewhere, no frames, no guessing of types, no referrer."""

    async def questions(client: Client) -> None:
        async with client.get(path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self';" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Referrer-Policy"] == "no-referrer"
            assert response.headers["Server"] == "tussock"

    ask(questions)


@pytest.mark.parametrize("path", CLOSED)
def test_status_and_metrics_need_a_token(path: str) -> None:
    """Status and metrics are refused without a token (401) and to a caller without a role (403); no secret is shown."""

    async def questions(client: Client) -> None:
        for headers, expected, kind in (
            ({}, 401, "Unauthenticated"),
            ({"Authorization": "Bearer wrong-secret"}, 401, "Unauthenticated"),
            ({"Authorization": "Bearer none"}, 403, "AccessDenied"),
        ):
            async with client.get(path, headers=headers) as response:
                text = await response.text()
                assert response.status == expected
                assert json.loads(text)["kind"] == kind
                assert "wrong-secret" not in text
                assert ("WWW-Authenticate" in response.headers) == (expected == 401)
        async with client.get(path, headers={"Authorization": f"Bearer {SECRET}"}) as response:
            assert response.status == 200
        # A token in the address would end up in logs, so it is not looked at.
        async with client.get(path, params={"token": SECRET}) as response:
            assert response.status == 401

    ask(questions, authenticate=check)


@pytest.mark.parametrize("path", OPEN)
def test_page_and_probes_need_no_token(path: str) -> None:
    """The console's files hold nothing of the store, and the kubelet, which probes, has no token."""

    async def questions(client: Client) -> None:
        async with client.get(path) as response:
            assert response.status == 200

    ask(questions, authenticate=check)


@pytest.mark.parametrize(
    ("fields", "expected", "text"),
    [
        ({}, 200, "ok: leader"),
        ({"role": "follower", "leader": "meta-1:7420"}, 200, "ok: follower"),
        ({"ready": False, "role": "follower"}, 503, "not read the log"),
        ({"draining": True}, 503, "shutting down"),
    ],
)
def test_a_replica_is_ready_if_it_leads_or_keeps_up(fields: dict[str, Any], expected: int, text: str) -> None:
    """A replica is ready if it leads or keeps up, and not while it drains; it is live all the time."""
    status = bare_status()
    status = replace(status, replica=replace(status.replica, **fields))

    async def questions(client: Client) -> None:
        async with client.get("/readyz") as response:
            assert response.status == expected
            assert text in await response.text()
        async with client.get("/healthz") as response:
            assert response.status == 200

    ask(questions, lambda: status)


def test_liveness_fails_only_if_a_restart_helps() -> None:
    """A replica is live while its threads run; an ended one is named, until the process is restarted."""

    class Broken(Exception):
        """An unforeseen defect."""

    bucket = RequestCounts(open_bucket("memory://"))
    node = MetaNode(bucket, RealSystem(), NodeOptions(log_poll_seconds=0.01, leader_lease_seconds=0.5))
    node.start()
    silent = threading.excepthook
    threading.excepthook = lambda _: None
    answers = []

    async def questions(client: Client) -> None:
        async with client.get("/healthz") as response:
            answers.append((response.status, await response.text()))

    def ask_node() -> None:
        ask(questions, defect=node.defect)

    try:
        ask_node()

        def fail() -> None:
            raise Broken

        node.meta.refresh = fail  # type: ignore[method-assign]
        inside.join_task(node, "tail", 10)
        ask_node()
        node.close()
        ask_node()
    finally:
        threading.excepthook = silent
    ended = "threads of the replica have ended: tail; the log tells why\n"
    assert answers == [(200, "ok\n"), (503, ended), (200, "ok\n")]


def test_metrics_are_prometheus_text() -> None:
    async def questions(client: Client) -> None:
        async with client.get("/metrics") as response:
            assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert "up 1" in await response.text()

    ask(questions)


def test_unchanged_files_are_not_sent_again() -> None:
    """A browser asks whether its file is current, so that an upgrade shows at once."""

    async def questions(client: Client) -> None:
        async with client.get("/static/console.css") as response:
            assert response.content_type == "text/css"
            etag = response.headers["ETag"]
        async with client.get("/static/console.css", headers={"If-None-Match": etag}) as response:
            assert (response.status, await response.read()) == (304, b"")
        async with client.get("/static/console.css", headers={"If-None-Match": '"old"'}) as response:
            assert response.status == 200

    ask(questions)


@pytest.mark.parametrize("path", ["../http.py", "..%2fhttp.py", "vendor/../../http.py", "/etc/hostname", "__init__.py"])
def test_no_other_file_is_served(path: str) -> None:
    async def questions(client: Client) -> None:
        # As it is: a client would tidy the path up before it sends it.
        url = URL(f"{str(client._base_url).rstrip('/')}/static/{path}", encoded=True)
        async with client.get(url) as response:
            assert response.status == 404

    ask(questions)


def test_concurrent_requests_share_a_status() -> None:
    """Requests at the same moment share one status."""
    made = []

    def status() -> ServiceStatus:
        made.append(1)
        return bare_status()

    async def questions(client: Client) -> None:
        async def one() -> None:
            async with client.get("/api/status") as response:
                assert response.status == 200

        await asyncio.gather(*(one() for _ in range(20)))
        assert len(made) == 1

    ask(questions, status)


def test_bundled_library_is_the_published_one() -> None:
    """Each bundled file is the published one, by its hash, with version and licence."""
    vendor = CONSOLE / "vendor"
    sources = (vendor / "SOURCES.txt").read_text()
    hashes = {name: digest for digest, name in re.findall(r"^([0-9a-f]{64})  (\S+)$", sources, re.MULTILINE)}
    assert hashes.keys() == {path.name for path in vendor.iterdir()} - {"SOURCES.txt"}
    for name, digest in hashes.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name
    assert "MIT" in (vendor / "uPlot.LICENSE").read_text()
    version = re.search(r"uPlot \(v([\d.]+)\)", (vendor / "uPlot.iife.min.js").read_text()[:300])
    assert version is not None
    assert f"uPlot {version[1]} " in sources


def test_page_has_nothing_inline_and_no_markup_from_text() -> None:
    """The console's own files obey the policy, and never make markup from text."""
    page = (CONSOLE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style| style=| on\w+=|javascript:|https?:", page)
    for script in CONSOLE.glob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", script.read_text()), script
