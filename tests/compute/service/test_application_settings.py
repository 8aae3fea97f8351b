"""`tussock serve` ends with code 2 and names all that is wrong, before it serves anything."""

import json
import subprocess
from pathlib import Path

import pytest

from support.applications.serve_process import PROGRAM, ServeProcess
from support.children import path_of_imports
from support.service.meta_process import TUSSOCK
from tussock.compute import procedures as ps
from tussock.compute.service.server.settings import SERVE_FORM
from tussock.meta.node.settings.sources import options

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [TUSSOCK, "serve", *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path_of_imports(), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_all_wrong_settings_are_named(tmp_path: Path) -> None:
    """Of flags, environment and file, each with its place."""
    file = tmp_path / "serve.toml"
    file.write_text('nonsense = 1\n[limits]\nmessage_bytes = 1\n[tls]\nkey = "none"\n')
    ended = run(
        *(f"{PROGRAM}:make", "--config", str(file), "--listen", "nowhere", "--store", "ftp://x", "--colour", "red"),
        cwd=tmp_path,
        TUSSOCK_SERVE_DRAIN_SECONDS="-1",
    )
    assert ended.returncode == 2
    for word in ("nonsense", "limits.message_bytes", "--listen", "--store", "--colour", "TUSSOCK_SERVE_DRAIN_SECONDS"):
        assert word in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("app", "word"),
    [
        ("", "MODULE:APP"),
        ("no_colon", "MODULE:APP"),
        ("a b:c", "MODULE:APP"),
        ("no_such_module_here:make", "no_such_module_here"),
        (f"{PROGRAM}:nobody", "nobody"),
        (f"{PROGRAM}:number", "int"),
        (f"{PROGRAM}:raises", "no application today"),
        (f"{PROGRAM}:exits", "SystemExit"),
        (f"{PROGRAM}:returns_text", "str"),
        ("broken_module:make", "ZeroDivisionError"),
        ("half_module:make", "no_such_import"),
    ],
)
def test_what_is_no_application_is_one_line(tmp_path: Path, app: str, word: str) -> None:
    """No module, no attribute, not an application, an import that raises."""
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    (tmp_path / "half_module.py").write_text("import no_such_import\n")
    ended = run(app, "--store", (tmp_path / "store").as_uri(), "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert ended.returncode == 2
    (line,) = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("error: ")
    assert word in line


def test_a_function_needs_a_store(tmp_path: Path) -> None:
    """Nobody else says where the state is."""
    ended = run(f"{PROGRAM}:make", cwd=tmp_path)
    assert ended.returncode == 2
    assert "--store" in ended.stderr


def test_procedures_have_no_workers(tmp_path: Path) -> None:
    """They run one after the other, in one process."""
    ended = run(f"{PROGRAM}:make", "--store", (tmp_path / "store").as_uri(), "--workers", "2", cwd=tmp_path)
    assert ended.returncode == 2
    assert "workers are for functions" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_application_has_its_store(tmp_path: Path) -> None:
    """One that the module has made is served as it is; a store beside it has to be the same."""
    url, other = (tmp_path / "own").as_uri(), (tmp_path / "other").as_uri()
    ended = run(f"{PROGRAM}:ready", "--store", other, cwd=tmp_path, SERVED_STORE=url)
    assert ended.returncode == 2
    assert url in ended.stderr
    with ServeProcess(url, app=f"{PROGRAM}:ready", environment={"SERVED_STORE": url}) as node:
        with ps.Client(node.address) as client:
            assert client.submit("take", [{"n": 3}]).result(60) == 3
        node.terminate()
        assert node.wait() == 0


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    """An error of one line, which is of the log as all others are, and no application was started."""
    with ServeProcess((tmp_path / "a").as_uri()) as node:
        ended = run(f"{PROGRAM}:make", "--store", (tmp_path / "b").as_uri(), "--listen", node.address, cwd=tmp_path)
        other = run(
            *(f"{PROGRAM}:make", "--store", (tmp_path / "b").as_uri()),
            *("--listen", "127.0.0.1:0", "--http-listen", node.http),
            cwd=tmp_path,
        )
    for one, address in ((ended, node.address), (other, node.http)):
        assert one.returncode in (1, 2)
        last = json.loads(one.stderr.splitlines()[-1])
        told = f"cannot listen on {address}: the address is in use; end the process that has it, or set"
        assert (last["event"], last["level"], told in last["error"]) == ("did not start", "error", True)
        assert "Traceback" not in one.stderr


def test_the_page_lists_every_setting() -> None:
    """`docs/service.md` has a line for each option, with its default and what it is for."""
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    for option in options(SERVE_FORM.model, SERVE_FORM.prefix):
        default = f"`{option.default}`" if option.default else ""
        assert f"| `{option.name}` | {default} | {option.field.description} |" in page
