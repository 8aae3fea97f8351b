"""No text that leaves the operator has a secret value in it, whatever a library or a server says."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tussock.operator.probes.bucket import S3Target, check, check_readers, clean
from tussock.operator.probes.marker import Owner
from tussock.operator.probes.redaction import without_values
from tussock.statestore.base.system import RealSystem

OWNER = Owner("1", "data", "shop")
PASTED = "AKIAEXAMPLE\nwJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize("key", [PASTED, "AKIA\r\nX-Amz-Acl: public\r\nwJalrXUtnFEMI", "ключ-wJalrXUtnFEMI"])
def test_a_request_that_cannot_be_made_shows_no_key(key: str) -> None:
    """Story: the library's error repeated the header with access key and signature, and stood in status and log."""
    for access, hidden in ((key, "a-secret-that-is-fine"), ("AKIAEXAMPLE", key)):
        target = S3Target("http://127.0.0.1:1", "data", "p", "us-east-1", access, hidden)
        told = [
            check(target, OWNER, "", write=True).message,
            check_readers(target, target, "1").message,
            clean(target, OWNER, RealSystem(), delete=True).message,
        ]
        assert all(told)
        for part in ("wJalr", "AKIA", "Signature", "fine"):
            assert part not in str(told)


class _Echo(BaseHTTPRequestHandler):
    """A server that repeats the request's signature, and more."""

    def do_GET(self) -> None:
        said = f"{self.headers['Authorization']} is wrong, and so is wJalrXUtnFEMI%2FK7MDENG"
        code = "AuthorizationHeaderMalformed"
        body = f"<Error><Code>{code}</Code><Message>{said}</Message></Error>".encode()
        self.send_response(400)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_that_repeats_the_request_shows_no_key() -> None:
    server = HTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        target = S3Target(endpoint, "data", "p", "us-east-1", "AKIAEXAMPLE", "wJalrXUtnFEMI/K7MDENG")
        told = check(target, OWNER, "", write=True).message
    finally:
        server.shutdown()
        server.server_close()
    assert "AuthorizationHeaderMalformed" in told
    for part in ("AKIA", "wJalr", "K7MDENG", "Signature="):
        assert part not in told


def test_what_is_no_secret_stays() -> None:
    key = {"type": "service_account", "token_uri": "https://oauth2.example/token", "private_key": "MIIEvQIBADAN"}
    said = "error sending request for url (https://oauth2.example/token) of service_account"
    assert without_values(said, [json.dumps(key), "", "er"]) == said
    assert without_values("bad er, MIIEvQIBADAN", [json.dumps(key), "er"]) == "bad ..., ..."


def test_values_that_overlap_go_whole() -> None:
    secret = base64.b64encode(b"0123456789").decode()
    assert without_values(f"x {secret} y", [secret[:6], secret]) == "x ... y"
