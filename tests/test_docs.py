"""The documents tell the truth: their links lead somewhere, and their Python runs.

A Python block in `README.md` or `docs/*.md` says after `python` what becomes of it:

- `run`: the blocks of one file run in order, in one namespace and an empty working folder;
- `run spark`: the same, in the test that is marked `spark`;
- `no-run: why`: it is only read.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest

from support.spark.scripts_in_turn import ScriptsInTurn

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
MARK = re.compile(r"^python (run|run spark|no-run: \S.*)$")


class Block(NamedTuple):
    """A fenced block of a Markdown file."""

    line: int
    info: str
    code: str


def documents() -> list[Path]:
    """All Markdown files of the project."""
    folders = [ROOT / name for name in ("docs", "benchmarks", "examples", "tests")]
    return sorted([*ROOT.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.md"))])


def name_of(path: Path) -> str:
    """A path as the names of the tests show it."""
    return path.relative_to(ROOT).as_posix()


def split(path: Path) -> tuple[list[Block], str]:
    """The fenced blocks of a file, and its text without them."""
    blocks, prose = [], []
    opened: re.Match[str] | None = None
    code: list[str] = []
    start = 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if opened is None:
            opened = FENCE.match(line)
            start, code = number, []
            prose.append("" if opened else line)
        elif line.strip() == opened["fence"]:
            blocks.append(Block(start, opened["info"].strip(), "\n".join(code)))
            opened = None
        else:
            code.append(line.removeprefix(opened["indent"]))
    assert opened is None, f"{name_of(path)}:{start}: the block is never closed"
    return blocks, "\n".join(prose)


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of a file's headings."""
    headings = [match[1] for line in split(path)[1].splitlines() if (match := HEADING.match(line))]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def python_blocks(path: Path) -> Iterator[Block]:
    """The blocks of a file that say they are Python."""
    return (block for block in split(path)[0] if block.info.split(" ")[0] in ("python", "py", "python3"))


def with_mark(mark: str) -> list[Path]:
    """The files that have a block of that mark."""
    return [path for path in documents() if any(block.info == f"python {mark}" for block in python_blocks(path))]


def source_of(path: Path, marks: set[str]) -> str:
    """The blocks of a file that have one of the marks, each on the line where the document has it."""
    lines: list[str] = []
    for block in python_blocks(path):
        if block.info.removeprefix("python ") in marks:
            lines += [""] * (block.line - len(lines)) + block.code.splitlines()
    return "\n".join(lines)


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_links_have_a_target(path: Path) -> None:
    """A link to a file of the project leads to an existing one, and its anchor to a heading."""
    broken = []
    prose = re.sub(r"`[^`\n]*`", "", split(path)[1])
    for target in LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = unquote(target).partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_tests_that_documents_name_exist() -> None:
    """A requirement whose test was renamed, or is gone, would look tested."""
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = {
        (name_of(path), name)
        for path in documents()
        for name in re.findall(r"`(test_\w+)`", path.read_text(encoding="utf-8"))
    }
    assert ("docs/procedures.md", "test_a_torn_end") in named
    assert not {(page, name) for page, name in named if name not in there}


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_python_blocks_say_whether_they_run(path: Path) -> None:
    """A Python block without a mark would rot unseen; one that does not run has a reason."""
    unmarked = [f"line {block.line}: {block.info}" for block in python_blocks(path) if not MARK.match(block.info)]
    assert unmarked == []


@pytest.mark.parametrize("path", with_mark("run"), ids=name_of)
def test_python_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block marked `run` runs to its end after those before it, its asserts included."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    exec(compile(source_of(path, {"run"}), str(path), "exec"), namespace)
    assert len(namespace) > 1, "the blocks did nothing"


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptsInTurn]:
    """A process that shares no Spark with other tests."""
    scripts = ScriptsInTurn(tmp_path_factory.mktemp("in-turn") / "log")
    yield scripts
    scripts.end()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("path", with_mark("run spark"), ids=name_of)
def test_spark_blocks_run(path: Path, in_turn: ScriptsInTurn, tmp_path: Path) -> None:
    """Every block marked `run spark` runs after all before it, in a Spark context that no other file has."""
    script = tmp_path / "blocks.py"
    script.write_text(source_of(path, {"run", "run spark"}), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    wrong = in_turn.run(script, tmp_path / "empty")
    assert not wrong, f"{name_of(path)}: {wrong[-4000:]}"
