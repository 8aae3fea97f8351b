"""Stores with one prefix inside the other, which the operator cannot tell by their manifests."""

import pytest

from support.operator.process import Body, Objects, eventually
from support.operator.stores_in_cluster import serving

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator")]


def nested(store: Body, name: str, within: str) -> Body:
    """A store within a prefix, at the same server by another name."""
    s3 = store["spec"]["objectStore"]["s3"]
    endpoint = s3["endpoint"].replace("127.0.0.1", "localhost")
    assert endpoint != s3["endpoint"]
    backend = {"s3": {**s3, "endpoint": endpoint, "prefix": f"{s3['prefix']}{within}"}}
    return {**store, "metadata": {"name": name}, "spec": {**store["spec"], "objectStore": backend}}


def test_a_server_of_two_names_hides_no_store(store: Body, name: str, shared: Objects) -> None:
    """Story: both began. The second one begins when the first has gone."""
    serving(shared, store)
    shared.apply(nested(store, f"{name}-in", "/y"))
    found = shared.await_reason("StateStore", f"{name}-in", "PrefixInUse")
    prefix = store["spec"]["objectStore"]["s3"]["prefix"]
    assert f"StateStore {shared.namespace}/{name} (uid " in found["message"]
    assert f"its marker is the object {prefix}/tussock-owner of the bucket" in found["message"]
    assert shared.get("Meta", f"{name}-in") is None
    shared.delete("StateStore", name)
    eventually("the first store gone", lambda: shared.get("StateStore", name) is None)
    serving(shared, nested(store, f"{name}-in", "/y"))
