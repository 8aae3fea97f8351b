"""What goes wrong between user and cluster: every command says it in one line, and ends with 1, or 2 for usage."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.binaries import search_path
from support.buckets.minio import free_port
from support.operator.plugin.commands import COMMAND, Answer
from support.operator.process import Objects
from support.operator.stores_in_cluster import unprobed_store

COMMANDS: dict[str, tuple[str, ...]] = {
    "status": (),
    "epochs": ("s",),
    "logs": ("s",),
    "report": ("s",),
    "backup": ("s", "b"),
    "compact": ("s", "t"),
    "release": ("s",),
    "console": ("s",),
    "env": ("s",),
    "restart": ("s",),
    "promote": ("s", "p"),
}


def run(*arguments: str, path: str | None = None, folder: Path | None = None) -> Answer:
    environment = {**os.environ, "PATH": search_path() if path is None else path, "COLUMNS": "200"}
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, check=False, text=True, timeout=120, env=environment, cwd=folder
    )


def failed(told: Answer, words: str, code: int = 1) -> None:
    """It is one line, and there is no other output."""
    assert (told.returncode, told.stdout) == (code, "")
    assert told.stderr.startswith("error: "), told.stderr
    assert words in told.stderr
    assert len(told.stderr.splitlines()) == 1, told.stderr


def other_config(objects: Objects, folder: Path, part: str, **changes: Any) -> str:
    """A kubeconfig with changes in its cluster or its user."""
    config = yaml.safe_load(objects.kubeconfig.read_text())
    config[f"{part}s"][0][part] |= changes
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_user_without_rights_is_told(objects: Objects, tmp_path: Path, command: str) -> None:
    """By the API server, with the right that is missing."""
    objects.apply(unprobed_store("s"))
    config = other_config(objects, tmp_path, "user", **{"as": "nobody"})
    told = run(command, *COMMANDS[command], "--kubeconfig", config, "-n", objects.namespace, folder=tmp_path)
    failed(told, "Error from server (Forbidden): statestore")
    assert 'User "nobody" cannot' in told.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["config"]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_api_server_that_is_gone_is_told(objects: Objects, tmp_path: Path, command: str) -> None:
    config = other_config(objects, tmp_path, "cluster", server=f"https://127.0.0.1:{free_port()}")
    told = run(command, *COMMANDS[command], "--kubeconfig", config, "-n", objects.namespace, folder=tmp_path)
    failed(told, "The connection to the server 127.0.0.1:")


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "release"])
def test_a_wrong_namespace_is_told(objects: Objects, tmp_path: Path, command: str) -> None:
    """That of a namespace that is not there, too, which no server denies."""
    objects.apply(unprobed_store("s"))
    config = ("--kubeconfig", str(objects.kubeconfig), "-n", "elsewhere")
    told = run(command, *COMMANDS[command], *config, folder=tmp_path)
    failed(told, "in namespace elsewhere; use --namespace to look in another one")


def test_wrong_kubeconfigs_are_told(tmp_path: Path) -> None:
    failed(run("status", "--kubeconfig", "/nowhere"), "stat /nowhere: no such file or directory")
    damaged = tmp_path / "config"
    damaged.write_text("{")
    failed(run("status", "--kubeconfig", str(damaged)), "error loading config file")


def test_a_machine_without_kubectl_is_told(tmp_path: Path) -> None:
    failed(run("status", path=str(tmp_path)), "there is no kubectl on the PATH; install it, or put it there")


@pytest.mark.parametrize("arguments", [("nonsense",), ("status", "--nonsense"), ("status", "a", "b"), ("compact", "s")])
def test_wrong_usage_is_told(arguments: tuple[str, ...]) -> None:
    """With the command whose help has more."""
    told = run(*arguments)
    failed(told, "--help'", 2)


def test_names_cannot_be_options_or_escape_the_terminal(objects: Objects) -> None:
    """A name with a dash in front reaches kubectl as a name, and control characters do not reach the terminal."""
    config = ("--kubeconfig", str(objects.kubeconfig), "-n", objects.namespace)
    failed(run("epochs", *config, "--", "--all-namespaces"), "there is no StateStore --all-namespaces")
    told = run("epochs", "\x1b[31mred", *config)
    assert told.returncode == 1
    assert "\x1b" not in told.stderr


WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
from tussock.operator.plugin.__main__ import main
sys.argv = ["kubectl-tussock", "--help"]
main()
"""


def test_a_missing_extra_is_told() -> None:
    """An install without it has the script, too."""
    command = [sys.executable, "-c", WITHOUT.format(missing=["typer"])]
    told = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    failed(told, "kubectl tussock needs the package typer: install the extras cli and platform")


def test_a_laptop_needs_nothing_of_the_operator() -> None:
    """The extras of the command line and of clients are enough; nothing that works on rows is loaded."""
    operators = ["aiohttp", "croniter", "cryptography", "kopf", "kubernetes", "minio", "prometheus_client", "pydantic"]
    rows = ["numpy", "pandas", "polars", "pyarrow"]
    command = [sys.executable, "-c", WITHOUT.format(missing=[*operators, *rows, "yaml"])]
    told = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")
    assert "promote" in told.stdout
