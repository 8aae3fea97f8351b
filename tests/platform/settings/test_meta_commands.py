"""`tussock meta settings` and `tussock meta token`, as users type them."""

import json
import socket
import subprocess
from pathlib import Path

import pytest

from support.service.meta_process import TUSSOCK
from tussock.meta.node.auth.tokens import find_token, read_tokens


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TUSSOCK, "meta", *arguments],
        env={"PATH": "", **environment},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


def test_effective_settings_are_shown(tmp_path: Path) -> None:
    """Flags, environment and file are applied, and secrets left out."""
    file = tmp_path / "meta.toml"
    file.write_text('store = "s3://bucket/prefix"\ndrain_seconds = 3\n')
    ran = run(
        *("settings", "--config", str(file), "--leader.lease-seconds=5"),
        TUSSOCK_META_CREDENTIALS__SECRET_ACCESS_KEY="s3cret",
    )
    shown = json.loads(ran.stdout)
    assert (ran.returncode, shown["leader.lease_seconds"], shown["drain_seconds"]) == (0, 5.0, 3.0)
    assert shown["credentials.secret_access_key"] == "**********"
    assert "s3cret" not in ran.stdout + ran.stderr


def test_the_token_and_its_line_go_to_different_streams(tmp_path: Path) -> None:
    """`>> tokens` appends what the service needs, and the secret is seen once."""
    ran = run("token", "spark", "writer,compactor")
    assert ran.returncode == 0
    secret = ran.stderr.split()[-1]
    assert secret not in ran.stdout
    (tmp_path / "tokens").write_text(ran.stdout)
    token = find_token(read_tokens([str(tmp_path / "tokens")]), secret)
    assert token is not None
    assert token.name == "spark"


@pytest.mark.parametrize("arguments", [("token", "a b", "writer"), ("token", "a", "owner"), ("token", "a")])
def test_malformed_token_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    """Code 2, and no output that could end up in the file."""
    ran = run(*arguments)
    assert (ran.returncode, ran.stdout) == (2, "")


@pytest.mark.parametrize("option", ["listen", "http_listen"])
def test_a_port_that_is_taken_is_told(tmp_path: Path, option: str) -> None:
    """Story: gRPC's own text came, which names neither the port nor what to do; nothing is served then."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = {"listen": "127.0.0.1:0", "http_listen": "127.0.0.1:0", option: address}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        ran = run("serve", f"--store={tmp_path.as_uri()}", *flags)
    assert ran.returncode == 1
    told = " ".join(ran.stderr.split())
    assert f"cannot listen on {address}: the address is in use" in told
    assert f"set {option} to another one" in told
    assert "Traceback" not in ran.stderr
