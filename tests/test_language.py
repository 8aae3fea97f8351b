"""The language of code and documents: patterns of words that a reader of plain English stumbles over.

Active voice, the subject first; people are *they*, replicas and programs *it*; functions return. Each pattern stands
with what to write instead. What a pattern finds wrongly is worded otherwise: there is always another way to say it.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".sh", ".js", ".html", ".css", ".proto", ".toml", ".tpl"}
BEGINNING = r"(?:^|(?<=[;:.] )|(?<=\"\"\")|(?<=# )|(?<=\* )|(?<=- )|(?<=\| ))"
PATTERNS = {
    "people are they, replicas and programs are it": re.compile(r"\b(?:[Hh]e|[Hh]is|[Hh]im|[Hh]imself)\b"),
    "name who it is: a client, a user, an operator that ...": re.compile(r"\b[Ww]ho(?:ever|soever)\b"),
    "'if a client ...', or name who it is: 'A client that ...'": re.compile(
        BEGINNING + r"[Ww]ho (?!\|)[a-z]+\b(?![^|]*\?)"
    ),
    "say how many, how long or how often, or 'that many'": re.compile(r"\b[Ss]o (?:many|long|often|much)\b"),
    "its own ..., their own ..., one of our ...": re.compile(r"\bof (?:ours|its own|their own|one's own|your own)\b"),
    "functions return": re.compile(
        r"(?:[;:.,] |\"\"\"|`\w+` |\(\)` )[Aa]nswers (?:an?|the|whether|how|what|with|all|each|its?|those)\b"
    ),
    "until": re.compile(r"\b[Tt]ill\b"),
}


def tracked_texts() -> list[Path]:
    """The project's text, without licences and generated files."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [
        ROOT / name
        for name in names
        if (Path(name).suffix in SUFFIXES or Path(name).name == "Makefile")
        and not name.endswith(("_pb2.py", "test_language.py"))
        and "/golden/" not in name
        and "/vendor/" not in name
        and (ROOT / name).exists()
    ]


@pytest.mark.parametrize("instead", PATTERNS)
def test_words_are_plain(instead: str) -> None:
    """Each finding with its line; what to write instead is the name of the pattern."""
    found = []
    for path in tracked_texts():
        name = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found += [
                f"{name}:{number}: {match[0]!r} in {line.strip()[:100]}"
                for match in PATTERNS[instead].finditer(line.strip())
            ]
    assert not found, "\n".join([instead, *found])


@pytest.mark.parametrize(
    ("instead", "line"),
    [
        ("people are they, replicas and programs are it", "the leader and his lease"),
        ("name who it is: a client, a user, an operator that ...", "whoever may read it"),
        ("'if a client ...', or name who it is: 'A client that ...'", "Who has no token is refused."),
        ("say how many, how long or how often, or 'that many'", "it waits so long that a lease ends"),
        ("its own ..., their own ..., one of our ...", "a file of its own"),
        ("functions return", '"""Answers the epoch."""'),
        ("functions return", "Take it over; answers its generation."),
        ("until", "it waits till then"),
    ],
)
def test_patterns_find_what_they_are_for(instead: str, line: str) -> None:
    """A pattern that finds nothing would pass everything."""
    assert PATTERNS[instead].search(line)


def test_questions_may_begin_with_who() -> None:
    """In a question it is plain English."""
    assert not PATTERNS["'if a client ...', or name who it is: 'A client that ...'"].search("Who may call what?")
