"""`meta.proto`, the code generated from it, the table of methods and the pages about them agree."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tussock.meta.rpc.errors import decode_error, encode_error, status_of
from tussock.meta.rpc.methods import METHODS, Role
from tussock.statestore import errors
from tussock.statestore.errors import TussockError

ROOT = Path(__file__).resolve().parents[3]
PROTO = "tussock/meta/rpc/meta.proto"
PAGE = (ROOT / "docs/meta-protocol.md").read_text(encoding="utf-8")
KINDS = [getattr(errors, name) for name in errors.__all__ if name != "TussockError"]


def test_generated_code_matches_the_proto(tmp_path: Path) -> None:
    """Otherwise a change of the proto would not take effect, or a change by hand would be lost."""
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(ROOT / "meta")]
    command += [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(ROOT / "meta" / PROTO)]
    subprocess.run(command, check=True, timeout=60)
    for suffix in ("_pb2.py", "_pb2.pyi"):
        path = PROTO.replace(".proto", suffix)
        assert (tmp_path / path).read_text() == (ROOT / "meta" / path).read_text(), f"{path}: run `make proto`"


def test_every_call_is_described_with_its_roles() -> None:
    """The page's table gives each call the roles that the service checks."""
    described = {}
    for names, roles in re.findall(r"^\| (`[A-Z]\w+`(?:, `[A-Z]\w+`)*) \| (all|writer|compactor|admin) \|", PAGE, re.M):
        for name in re.findall(r"\w+", names):
            described[name] = roles
    expected = {
        "all": Role.READER | Role.WRITER | Role.COMPACTOR | Role.ADMIN,
        "writer": Role.WRITER | Role.ADMIN,
        "compactor": Role.COMPACTOR | Role.ADMIN,
        "admin": Role.ADMIN,
    }
    assert {name: expected[roles] for name, roles in described.items()} == {m.name: m.roles for m in METHODS.values()}


def test_every_error_has_the_status_that_the_page_lists() -> None:
    """Proxies, and clients in other languages, act on the status."""
    described = {}
    for codes, kinds in re.findall(r"^\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \| (`.*`) \|$", PAGE, re.M):
        found = re.findall(r"[A-Z_]{5,}", codes)
        for at, kind in enumerate(re.findall(r"\w+", kinds)):
            described[kind] = found[min(at, len(found) - 1)]
    assert described == {kind.__name__: status_of(kind("x")) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_errors_travel_whole(kind: type[TussockError]) -> None:
    """Class, message and facts arrive unchanged."""
    error = kind("what was wrong", -7, "name", b"\xff\x00", 2**62)
    arrived = decode_error(encode_error(error))
    assert (type(arrived), arrived.args, str(arrived)) == (kind, error.args, "what was wrong")


def test_an_error_of_a_newer_service_is_still_an_error() -> None:
    """Its kind is in the message."""
    detail = encode_error(TussockError("what was wrong")).replace(b"TussockError", b"SomethingNew")
    arrived = decode_error(detail)
    assert type(arrived) is TussockError
    assert "SomethingNew" in str(arrived)
    assert "what was wrong" in str(arrived)
