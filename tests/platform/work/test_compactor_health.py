"""Liveness and readiness of a compactor node."""

import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support import inside
from support.buckets.minio import free_port
from support.service.meta_process import CompactorProcess, MetaProcess, ServiceProcess
from support.store.versions import FakeSystem
from support.waiting import WAIT_SECONDS
from tussock.compactor.node.health import start_health
from tussock.compactor.node.node import CompactorNode
from tussock.meta.client.connection import MetaConnection
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import InvalidOption


def ask(address: str, path: str) -> tuple[int, str]:
    """Status and text of a probe's answer."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def wait_for(address: str, path: str, status: int) -> str:
    """Wait for an answer with this status; returns its text."""
    system = RealSystem()
    deadline = system.monotonic() + WAIT_SECONDS
    while system.monotonic() < deadline:
        try:
            found, text = ask(address, path)
        except OSError:
            found, text = 0, "nobody listens"
        if found == status:
            return text
        system.sleep(0.05)
    raise AssertionError(f"{path} still answers {found}: {text}")


def test_answers_have_the_reason() -> None:
    """200 while all is well, 503 with the reason, 404 for other paths."""
    wrong = {"alive": "", "ready": "no session"}
    address = start_health("127.0.0.1:0", lambda: wrong["alive"], lambda: wrong["ready"])
    assert ask(address, "/healthz") == (200, "ok\n")
    assert ask(address, "/readyz") == (503, "no session\n")
    wrong.update(alive="a thread has ended", ready="")
    assert ask(address, "/healthz") == (503, "a thread has ended\n")
    assert ask(address, "/readyz") == (200, "ok\n")
    assert ask(address, "/etc/passwd")[0] == 404


def test_unusable_address_is_reported() -> None:
    """A wrong address, and one in use."""
    with pytest.raises(InvalidOption, match="HOST:PORT"):
        start_health("7372", str, str)
    taken = start_health("127.0.0.1:0", str, str)
    with pytest.raises(InvalidOption, match=r"cannot listen at 127\.0\.0\.1:"):
        start_health(taken, str, str)


def test_ended_threads_are_a_defect_and_a_lapsed_session_is_not() -> None:
    """A restart cures ended threads; a lapsed session only makes the node not ready."""
    system = FakeSystem()
    connection: Any = SimpleNamespace(is_alive=True, lease_deadline=system.monotonic() + 10)
    node = CompactorNode(cast(MetaConnection, connection), system)
    assert (node.defect(), node.obstacle()) == ("", "")
    system.forward(11)
    assert (node.defect(), node.obstacle()) == ("", "the node has no session at the meta service")
    connection.is_alive = False
    assert "the session's threads have ended" in node.defect()
    connection.is_alive = True
    inside.kill_threads(node)
    assert "the thread of a slot has ended" in node.defect()


@pytest.mark.long
def test_node_is_ready_only_while_its_service_is_reachable(tmp_path: Path) -> None:
    """It is live from its start on; readiness follows the service, and liveness stays."""
    meta_port, health = free_port(), f"127.0.0.1:{free_port()}"
    service = ("--listen", f"127.0.0.1:{meta_port}", "--session.lease-seconds", "2")
    node = ("compactor", "--meta", f"127.0.0.1:{meta_port}", "--name", "one", "--deadline", "1")
    with ServiceProcess(*node, "--health-listen", health) as compactor:
        assert wait_for(health, "/healthz", 200) == "ok\n"
        assert ask(health, "/readyz") == (503, "the node has no session at the meta service\n")
        compactor.wait_for(event="waiting for the meta service")
        with MetaProcess(tmp_path.as_uri(), *service):
            assert wait_for(health, "/readyz", 200) == "ok\n"
        assert "no session" in wait_for(health, "/readyz", 503)
        assert ask(health, "/healthz")[0] == 200
        with MetaProcess(tmp_path.as_uri(), *service) as meta:
            wait_for(health, "/readyz", 200)
            meta.terminate()
            assert meta.wait() == 0
        compactor.terminate()
        assert compactor.wait() == 0


def test_waiting_node_ends_on_sigterm() -> None:
    """SIGTERM before the service was ever there."""
    with ServiceProcess("compactor", "--meta", "127.0.0.1:1", "--deadline", "1") as compactor:
        compactor.wait_for(event="waiting for the meta service")
        compactor.terminate()
        assert compactor.wait() == 0


def test_port_is_logged(tmp_path: Path) -> None:
    """Also one that the system chose."""
    with (
        MetaProcess(tmp_path.as_uri()) as meta,
        CompactorProcess(meta, "one", "--health-listen", "127.0.0.1:0") as node,
    ):
        health = node.wait_for(event="compacting")["health"]
        assert ask(str(health), "/readyz") == (200, "ok\n")
