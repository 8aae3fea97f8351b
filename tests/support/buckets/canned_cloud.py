"""A server on loopback that answers each kind of request as the documentation of a cloud's object store says."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote

from tussock.operator.probes.cloud import CloudTarget

__all__ = ["Answer", "CannedCloud", "azure_target", "gcs_key", "gcs_target", "running_cloud"]


class Answer(NamedTuple):
    """Status, and the code and words that stand in the XML of an error."""

    status: int
    code: str = ""
    message: str = ""


_NO_OBJECT = ("NoSuchKey", "BlobNotFound")
_LISTINGS = {
    "list-type=2": Answer(200, "Listing", "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"),
    "comp=list": Answer(200, "Listing", "<EnumerationResults><Blobs></Blobs><NextMarker/></EnumerationResults>"),
}
"""Empty ones, as the two clouds answer them."""


class CannedCloud:
    """The answers to reads and writes; tests change them while the server runs."""

    def __init__(self) -> None:
        self.read = Answer(200)
        self.write = Answer(201)
        self.objects: dict[str, Answer] = {}
        """Answers to reads of single objects, by path; their messages are the objects' bytes, if they have no code."""
        self.url = ""

    def answer(self, method: str) -> Answer:
        """The answer to the next request of that method."""
        return self.read if method in ("GET", "HEAD") else self.write


@contextmanager
def running_cloud() -> Iterator[CannedCloud]:
    """A server with the answers of the canned cloud, on a free port."""
    cloud = CannedCloud()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = unquote(self.path.partition("?")[0])
            single = cloud.objects.get(path) if self.command == "GET" else None
            found = single or cloud.answer(self.command)
            if self.command == "GET" and found.status == 404 and found.code in _NO_OBJECT:
                # That one object is not there is no answer to a listing: nothing is there.
                found = _LISTINGS.get(next((key for key in _LISTINGS if key in self.path), ""), found)
            text = f"<Error><Code>{found.code}</Code><Message>{found.message}</Message></Error>" if found.code else ""
            text = found.message if found.code == "Listing" else text
            body = f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode() if text else b""
            if single is not None and not single.code:
                body = single.message.encode()
            self.send_response(found.status)
            self.send_header("Last-Modified", "Tue, 24 Nov 2026 12:00:00 GMT")
            for name, value in (("Content-Length", str(len(body))), ("ETag", '"1"'), ("x-ms-error-code", found.code)):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = answer  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield cloud
    finally:
        server.shutdown()
        server.server_close()


def gcs_key(url: str) -> str:
    """The key of a service account, in JSON, as emulators of Google's store want it: it names the server."""
    about = {"client_email": "shop@example.iam", "private_key": "hush-hush", "private_key_id": "1"}
    return json.dumps({**about, "gcs_base_url": url, "disable_oauth": True})


def gcs_target(url: str) -> CloudTarget:
    """A bucket of Google at that server."""
    return CloudTarget("gs://warehouse/shop", {"GOOGLE_SERVICE_ACCOUNT_KEY": gcs_key(url)})


def azure_target(url: str) -> CloudTarget:
    """A container of Azure at that server."""
    settings = {
        "AZURE_STORAGE_ACCOUNT_NAME": "warehouse",
        "AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"hush-hush").decode(),
        "AZURE_STORAGE_ENDPOINT": url,
        "AZURE_ALLOW_HTTP": "true",
    }
    return CloudTarget("az://shop/p", settings)
