"""Modules run as programs by processes whose imports are done: a command starts in 20 ms in place of most of a second.

A server process has imported what the commands need, and forks one child for each (`multiprocessing`'s fork server).
That a command starts from nothing is for tests that start it with `subprocess`.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["run_module"]

_PRELOADED = ["tussock.operator.plugin.app", "tussock.statestore", "tussock.meta.client"]


def run_module(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path | None = None,
    seconds: float = 180,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE ARGUMENTS` to its end; raises `subprocess.TimeoutExpired` if that takes too long."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with tempfile.TemporaryDirectory() as kept:
        output = [Path(kept, name) for name in ("stdout", "stderr")]
        where = (str(folder or Path.cwd()), dict(environment), [str(file) for file in output])
        process = context.Process(target=_run, args=(module, list(arguments), *where))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired([module, *arguments], seconds)
        told = [file.read_text() if file.exists() else "" for file in output]
        return subprocess.CompletedProcess([module, *arguments], process.exitcode, *told)


def _run(module: str, arguments: list[str], folder: str, environment: dict[str, str], output: list[str]) -> None:
    """The child: take on what the parent gave, and be that program."""
    for descriptor, name in enumerate(output, start=1):
        file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
