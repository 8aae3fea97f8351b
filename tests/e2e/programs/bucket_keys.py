"""Runs in a pod: put the objects of `PUT` into the bucket of the tests, remove those of `REMOVE`, then list it."""

import io
import json
import os

from minio import Minio

server = Minio(
    os.environ["AWS_ENDPOINT_URL"].removeprefix("http://"),
    access_key=os.environ["AWS_ACCESS_KEY_ID"],
    secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
    secure=False,
)
for name in os.environ.get("PUT", "").split():
    server.put_object("tussock", name, io.BytesIO(b"not a store's"), 13)
for name in os.environ.get("REMOVE", "").split():
    server.remove_object("tussock", name)
print(json.dumps({"keys": [found.object_name for found in server.list_objects("tussock", recursive=True)]}))
