"""The objects in a bucket of MinIO, as its administrator sees them."""

import io

from minio import Minio

from support.buckets.minio import BUCKET, MinioServer

__all__ = ["client_of", "fill", "names_in"]


def client_of(minio: MinioServer) -> Minio:
    """A client with all rights."""
    return Minio(minio.endpoint.removeprefix("http://"), access_key=minio.user, secret_key=minio.password, secure=False)


def fill(minio: MinioServer, *names: str) -> None:
    """Make small objects of these names."""
    for name in names:
        client_of(minio).put_object(BUCKET, name, io.BytesIO(b"x"), 1)


def names_in(minio: MinioServer, prefix: str) -> set[str]:
    """The names of all objects below a prefix, without it."""
    found = client_of(minio).list_objects(BUCKET, prefix=prefix, recursive=True)
    return {str(entry.object_name).removeprefix(prefix) for entry in found}
