"""Runs in a pod: make the bucket of the tests in MinIO."""

import json
import os

from minio import Minio

server = Minio(
    os.environ["AWS_ENDPOINT_URL"].removeprefix("http://"),
    access_key=os.environ["AWS_ACCESS_KEY_ID"],
    secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
    secure=False,
)
server.make_bucket("tussock")
print(json.dumps({"buckets": [bucket.name for bucket in server.list_buckets()]}))
