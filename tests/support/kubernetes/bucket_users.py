"""A user with an S3 bucket, on which stores come and go; its server is a MinIO outside any store."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cluster.view.client import Cluster
from cluster.view.pods import secret
from support.kubernetes.programs_in_pods import BucketServer, start_minio
from support.kubernetes.users import User, resource

__all__ = ["Bucket", "bucket_in"]


class Bucket(User):
    """A namespace with a bucket server, on which stores come and go."""

    def __init__(self, cluster: Cluster, namespace: str, node_image: str, server: BucketServer) -> None:
        super().__init__(cluster, namespace, node_image)
        self.server = server

    def store(self, name: str, *, bucket: str = "tussock", keys: str = "keys", **spec: Any) -> dict[str, Any]:
        """A store below the prefix of its name."""
        s3 = {
            "bucket": bucket,
            "prefix": name,
            "endpoint": self.server.endpoint,
            "allowHttp": True,
            "credentialsSecret": {"name": keys},
        }
        return resource("StateStore", name, objectStore={"s3": s3}, **{"meta": {}, **spec})

    def keys(self, name: str, password: str = "") -> dict[str, Any]:
        """The secret of a store, with the right password if none is given."""
        return secret(name, {"access-key-id": self.server.user, "secret-access-key": password or self.server.password})

    def rows(self, store: str, to: int = 0) -> dict[str, object]:
        """The rows of the table `kv`, after the client has written epochs up to `to`."""
        # The one pair of this bucket may write, so the service hands it to no reader; the reader brings a pair.
        role, keys = ("writer", []) if to else ("reader", ["bucket"])
        return self.run("rows", store=store, role=role, secret_names=keys, environment={"TO": str(to)})

    def objects(self, put: str = "", remove: str = "") -> set[str]:
        """The names of all objects in the bucket; those of `put` are written first, and those of `remove` removed."""
        found = self.run("bucket_keys", secret_names=["bucket"], environment={"PUT": put, "REMOVE": remove})["keys"]
        assert isinstance(found, list)
        return set(found)

    def elsewhere(self, namespace: str) -> "Bucket":
        """Another user with the same bucket in another namespace."""
        self.cluster.apply(self.keys("keys"), secret("bucket", self.server.environment()), namespace=namespace)
        return Bucket(self.cluster, namespace, self._node_image, self.server)

    def delete_stores(self) -> None:
        """Delete all stores of the namespace, and wait until they are gone."""
        with self.cluster.phase(f"{self.namespace.partition('-')[0]}: delete"):
            self.kubectl("delete", "tsb,tsx,tss", "--all", "--timeout=200s", seconds=240)


@contextmanager
def bucket_in(cluster: Cluster, namespace: str, image_names: Mapping[str, str], small: str = "") -> Iterator[Bucket]:
    """A MinIO with its bucket in a namespace; at the end all stores there are deleted. `small` as in `minio_pod`."""
    found = Bucket(cluster, namespace, image_names["node"], start_minio(cluster, namespace, image_names, small))
    cluster.apply(found.keys("keys"), namespace=namespace)
    try:
        yield found
    finally:
        found.delete_stores()
