"""A program on no pod uses a store by node ports: through the cluster's real network, and across a change of leader."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.view.client import Cluster
from support.kubernetes.users import SECONDS, User, resource
from support.waiting import eventually

USE = """
import sys
from tussock.statestore import connect
from os import environ
with connect(environ["TUSSOCK_STORE"]) as store:
    store.create_table(sys.argv[1])
    print(*store.tables())
"""


@pytest.fixture(scope="module")
def user(cluster: Cluster, operator: str, image_names: dict[str, str]) -> Iterator[User]:
    """A namespace with a store of two meta nodes, which clients outside reach by the address of a machine."""
    node = cluster.list("nodes", "")[0]
    addresses = {one["type"]: one["address"] for one in node["status"]["addresses"]}
    with cluster.namespace("outside") as namespace:
        outside = {"type": "NodePort", "host": addresses["InternalIP"]}
        store = resource(
            "StateStore",
            "shop",
            objectStore={"managed": {"size": "1Gi", "ephemeral": True}},
            meta={"replicas": 2, "outside": outside},
        )
        cluster.apply(store, namespace=namespace)
        made = User(cluster, namespace, image_names["node"])
        made.await_reason("tss/shop", "Ready", status="True")
        yield made


def create_table(user: User, folder: Path, name: str) -> list[str]:
    """What a program outside sees of the tables, after it has made one."""
    text = user.kubectl("tussock", "env", "shop", "--outside", "--folder", str(folder), "--role", "writer")
    given = dict(re.findall(r"^export (\w+)='?([^'\n]*)'?$", text, re.MULTILINE))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TUSSOCK_")}
    program = [sys.executable, "-c", USE, name]
    done = subprocess.run(
        program, env={**environment, **given}, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_program_outside_follows_the_leader(cluster: Cluster, user: User, tmp_path: Path) -> None:
    """It is let in by its certificate, and finds the next leader at an address that it can reach."""
    with cluster.phase("outside: the first table"):
        assert create_table(user, tmp_path / "env", "a") == ["a"]
    leader = user.get("tss/shop")["status"]["leader"]
    user.kubectl("delete", "pod", leader)
    with cluster.phase("outside: a table by the next leader"):
        assert create_table(user, tmp_path / "env", "b") == ["a", "b"]
    # The replica that takes the place of the former leader has to get its number first.
    eventually(lambda: len(user.get("tss/shop")["status"].get("outsideEndpoint", "").split(",")) == 2)
    user.await_reason("tss/shop", "Ready", status="True")
