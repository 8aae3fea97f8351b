"""Runs scripts that each start Spark, one after the other in one process: Java starts once, and its classes are warm.

Each script is `__main__` in an empty folder, and gets a Spark context that no other has. The first one starts Java, as
a user's does; Java stays in that folder, which is emptied for each of the others. As a program, it takes lines, each
with the path of a script and its folder, and answers each with a line: what went wrong, as JSON, or an empty string.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

from pyspark.sql import SparkSession

__all__ = ["ScriptsInTurn"]


class ScriptsInTurn:
    """The process, and who gives it scripts."""

    def __init__(self, log: Path) -> None:
        """`log` is for what the scripts print."""
        self._log = log
        with log.open("w") as printed:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                text=True,
            )

    def run(self, script: Path, folder: Path) -> str:
        """What went wrong in an empty folder that no script had before; nothing, as it should be."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(script), str(folder)]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        return json.loads(answer) if answer else f"the process died: {self._log.read_text()[-4000:]}"

    def end(self) -> None:
        """No script comes any more."""
        self._process.communicate()


def _answer() -> None:
    # What scripts and Java print goes with the errors: the pipe is for answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    java = None
    for line in sys.stdin:
        script, folder = json.loads(line)
        for left in java.iterdir() if java else ():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        java = java or Path(folder)
        # Stores that Tussock keeps open in a process are known by their URLs, so each script has a folder for itself.
        os.chdir(folder)
        sys.path[0] = folder  # not the folder of this module
        print(json.dumps(_wrong_with(script)), file=answers, flush=True)


def _wrong_with(script: str) -> str:
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException:
        return traceback.format_exc()
    finally:
        # As the end of a process would do, with the streams that still run.
        if SparkSession._instantiatedSession is not None:
            SparkSession._instantiatedSession.stop()
    return ""


if __name__ == "__main__":
    _answer()
