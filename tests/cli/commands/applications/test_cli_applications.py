"""The commands that ask an application which `tussock serve` runs: `submit`, `call`, `trace`, `pause` and so on."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.applications.serve_process import ServeProcess
from support.service.meta_process import TUSSOCK
from support.store.command import Tussock
from support.waiting import eventually
from tussock.statestore import connect

SECONDS = 60
TOLD: dict[str, Any] = {"capture_output": True, "text": True, "timeout": SECONDS, "check": False}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServeProcess]:
    with ServeProcess((tmp_path / "store").as_uri()) as serving:
        yield serving


def rows_in(folder: Path, *lines: str) -> str:
    """A file with these lines."""
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_an_application_is_used_from_a_shell(node: ServeProcess, tussock: Tussock, tmp_path: Path) -> None:
    """A batch with an id runs once, however often it is given; calls take JSON or text; the trace lists both."""
    at = node.address
    submit = ("submit", at, "take", "--rows", rows_in(tmp_path, '{"n": 1}', "", '{"n": 2}'), "--batch-id", "5")
    assert tussock(*submit) == (0, "3\n", "")
    noted = "batch 5 of take was given before: this is its first reply, and these rows were not run\n"
    assert tussock(*submit) == (0, "3\n", noted)
    assert tussock("call", at, "total") == (0, "3\n", "")
    assert tussock("submit", at, "take", "--rows", rows_in(tmp_path, '{"n": 4}')).json() == 7
    assert tussock("submit", at, "anything", "-r", rows_in(tmp_path, '{"a": 1}', '{"a": 2}')).lines() == [
        {"a": 1},
        {"a": 2},
    ]
    echoed = tussock("call", at, "echo", "3", "north", '{"a": [1, null]}', "--timeout", "30")
    assert echoed.json() == [3, "north", {"a": [1, None]}]
    ran = [(line["procedure"], line["batch_id"]) for line in tussock("trace", at, "--json").lines()]
    assert ran == [
        *(("take", 5), ("add", 5), ("total", None), ("take", 6), ("add", 6)),
        *(("anything", 1), ("echo", None)),
    ]
    newest = tussock("trace", at, "--last", "2")
    assert newest.code == 0
    assert [line.split() for line in newest.out.splitlines()[-2:]] == [["anything", "1"], ["echo", "call"]]


def test_rows_come_from_standard_input(node: ServeProcess, tussock: Tussock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is what there is without `--rows`; an empty batch, too."""
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"n": 40}\n{"n": 2}\n'))
    assert tussock("submit", node.address, "take").json() == 42
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert tussock("submit", node.address, "take").json() == 42


def test_an_application_is_paused_resumed_and_drained(node: ServeProcess, tussock: Tussock, tmp_path: Path) -> None:
    """What is given in a pause waits for its end; a drain commits, and the node ends with 0."""
    at = node.address
    paused = tussock("pause", at)
    assert (paused.code, paused.out, paused.err) == (
        *(0, ""),
        "the application is paused; its clients will wait: tussock resume\n",
    )
    rows = rows_in(tmp_path, '{"n": 8}')
    waiting = subprocess.Popen([TUSSOCK, "submit", at, "take", "-r", rows], stdout=subprocess.PIPE, text=True)
    eventually(lambda: node.status()["waiting"] == 1)
    late = subprocess.run([TUSSOCK, "call", at, "total", "--timeout", "2"], **TOLD)
    assert (late.returncode, late.stdout) == (1, "")
    assert "did not begin within its deadline, and was not run" in late.stderr
    assert [line["procedure"] for line in tussock("trace", at, "--json").lines()] == []
    resumed = tussock("resume", at)
    assert (resumed.code, resumed.err) == (0, "the application goes on\n")
    assert json.loads(waiting.communicate(timeout=SECONDS)[0]) == 8
    assert waiting.returncode == 0
    drained = tussock("drain", at)
    assert (drained.code, drained.err) == (0, "the application is ending\n")
    assert node.wait() == 0
    with connect((tmp_path / "store").as_uri()) as store:
        assert store.table("sums").get(0) == {"id": 0, "sum": 8}


ERRORS: dict[str, tuple[list[str], str]] = {
    "procedure": (["submit", "AT", "nothere", "-r", "ROWS"], "no border procedure 'nothere'"),
    "column": (["submit", "AT", "take", "-r", "OTHER"], "unknown columns ['m']"),
    "raises": (["submit", "AT", "take", "-r", "NEGATIVE"], "-1 is negative"),
    "old-id": (["submit", "AT", "take", "-r", "ROWS", "--batch-id", "2"], "comes after batch 8"),
    "call": (["call", "AT", "nothere"], "no call procedure 'nothere'"),
    "arguments": (["call", "AT", "total", "1"], "total() takes 1 positional argument"),
    "boom": (["call", "AT", "boom", "no such seat"], "LookupError: no such seat"),
}


def test_errors_are_one_line_and_end_with_1(node: ServeProcess, tussock: Tussock, tmp_path: Path) -> None:
    """What the application answers, in its words; nothing is on standard output."""
    words: dict[str, Any] = {"AT": node.address}
    for name, line in (("ROWS", '{"n": 1}'), ("OTHER", '{"m": 1}'), ("NEGATIVE", '{"n": -1}')):
        (tmp_path / name).mkdir()
        words[name] = rows_in(tmp_path / name, line)
    assert tussock("submit", node.address, "take", "-r", words["ROWS"], "--batch-id", "7").code == 0
    for name, (command, said) in ERRORS.items():
        ran = tussock(*(words.get(word, word) for word in command))
        assert (ran.code, ran.out) == (1, ""), (name, ran)
        assert ran.err.startswith("error: "), (name, ran)
        assert said in ran.err, (name, ran)
    assert tussock("call", node.address, "total").json() == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"n": 1', "line 2 is no JSON: "),
        ("[1, 2]", "line 2 is no JSON object"),
        ("n=1", "line 2 is no JSON: "),
        ('{"n": ' + "[" * 5000 + "]" * 5000 + "}", "line 2 is no JSON: "),
    ],
)
def test_rows_that_are_no_json_are_wrong_usage(tussock: Tussock, tmp_path: Path, line: str, said: str) -> None:
    """Code 2, with the line; before anything is asked, so no application is needed."""
    ran = tussock("submit", "127.0.0.1:1", "take", "-r", rows_in(tmp_path, '{"n": 1}', line))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "127.0.0.1:1", "take", "--rows", "not-here.jsonl"),
        ("submit", "127.0.0.1:1", "take", "--batch-id", "0"),
        ("submit", "127.0.0.1:1"),
        ("call", "127.0.0.1:1", "total", "--timeout", "0"),
        ("trace", "127.0.0.1:1", "--last", "0"),
        ("drain",),
        ("pause",),
        ("resume",),
    ],
)
def test_wrong_usage_ends_with_2(tussock: Tussock, words: tuple[str, ...]) -> None:
    """An argument that is missing or out of its bounds, or a file that is not there."""
    ran = tussock(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
