"""The platform that the tests change and harm while its stream runs. Each test leaves it in order."""

from collections.abc import Iterator

import pytest

from cluster.node import Node
from cluster.view.client import Cluster
from support.kubernetes.boards import Board
from support.kubernetes.users import resource


@pytest.fixture(scope="package")
def board(cluster: Cluster, operator: str, image_names: dict[str, str]) -> Iterator[Board]:
    """A platform with three meta nodes, a compactor, and the stream with one executor, which has committed batches.

    The stream is that of `examples/board`, whose tables can be compared with the truth after any batch.
    """
    with cluster.namespace("board") as namespace:
        found = Board(cluster, namespace, image_names["node"])
        store = resource("StateStore", "board", objectStore={"managed": {}}, meta={"replicas": 3}, compactor={})
        try:
            with cluster.phase("under load: apply to the first batches"):
                cluster.apply(store, *found.job(), namespace=namespace)
                found.settle()
            yield found
        finally:
            with cluster.phase("under load: delete"):
                found.kubectl("delete", "tsx,tss", "--all", "--timeout=200s", seconds=240)


@pytest.fixture(scope="package")
def node(cluster: Cluster) -> Node:
    """The node, which has to be this project's."""
    if cluster.node is None:
        pytest.skip("the nodes of another cluster are not ours to harm")
    return cluster.node
