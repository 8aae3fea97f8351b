"""`docs/command-line.md` names every command of `tussock` and `kubectl tussock`, and each of their options."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tussock.cli.main import app
from tussock.operator.plugin.app import app as plugin

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "command-line.md").read_text(encoding="utf-8")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*|(?<![\w-])-[A-Z]\b")
HEADING = re.compile(r"^### `(.+)`$", re.MULTILINE)


def commands_of(program: typer.Typer, called: str) -> Iterator[tuple[str, set[str]]]:
    """Each command of a program by its full name, with its options."""

    def walk(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
        if hasattr(command, "commands"):
            for word, below in command.commands.items():
                yield from walk(below, f"{name} {word}")
        else:
            options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
            yield name, {word for option in options for word in option.opts}

    return walk(typer.main.get_command(program), called)


def prose(name: str) -> str:
    """What the page says of a command, without its example."""
    found = re.search(rf"^### `{re.escape(name)}`\n(.*?)(?=^###? |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/command-line.md has no heading for `{name}`"
    return re.sub(r"```.*?```", "", found[1], flags=re.DOTALL)


def shared_options(heading: str) -> set[str]:
    """The options that the page lists under a heading for all commands."""
    text = PAGE.split(f"## {heading}\n", 1)[1].split("\n##", 1)[0]
    return set(OPTION.findall(text))


TUSSOCK = dict(commands_of(app, "tussock"))
PLUGIN = dict(commands_of(plugin, "kubectl tussock"))
COMMON = shared_options("Options of several commands")


@pytest.mark.parametrize("name", TUSSOCK)
def test_page_lists_the_options_of_each_command(name: str) -> None:
    """A new option needs a word on the page; an option that is gone must leave it."""
    text, options = prose(name), TUSSOCK[name]
    assert options - COMMON <= set(OPTION.findall(text))
    assert set(OPTION.findall(text)) <= options


@pytest.mark.parametrize("name", PLUGIN)
def test_page_lists_the_options_of_each_command_of_the_plugin(name: str) -> None:
    """The same for `kubectl tussock`."""
    named, options = set(OPTION.findall(prose(name))), PLUGIN[name]
    assert named <= options
    assert options <= named | shared_options("`kubectl tussock`")


def test_page_has_no_other_commands() -> None:
    """A heading without a command would describe one that is gone."""
    assert set(HEADING.findall(PAGE)) == {*TUSSOCK, *PLUGIN}
