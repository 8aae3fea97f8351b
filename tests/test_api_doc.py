"""`docs/api.md` lists exactly the public API: every name, every parameter, every default."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tussock.statestore
from tussock.compute import changelog, functions, procedures
from tussock.statestore import errors
from tussock.statestore.base.limits import Limits
from tussock.statestore.contract.backend import BackupInfo, ClockRepair, PinInfo, VacuumReport, VersionView
from tussock.statestore.contract.barriers import BarrierEvent
from tussock.statestore.contract.copies import BackupCheck, CopyInfo, CopyReport
from tussock.statestore.contract.records import Run, SstInfo, TableLevels, TableSpec, TableState
from tussock.statestore.contract.renumbered import Renumbered
from tussock.statestore.transactions.delta import Delta, Frozen

PAGE = (Path(__file__).resolve().parent.parent / "docs/api.md").read_text(encoding="utf-8")
PUBLIC = {name: getattr(tussock.statestore, name) for name in tussock.statestore.__all__}
CLASSES = {name: value for name, value in PUBLIC.items() if isinstance(value, type) and name not in errors.__all__}
RECORDS: list[type[msgspec.Struct]] = [
    BarrierEvent,
    BackupCheck,
    BackupInfo,
    ClockRepair,
    CopyInfo,
    CopyReport,
    Limits,
    PinInfo,
    Renumbered,
    SstInfo,
    Run,
    TableLevels,
    TableSpec,
    TableState,
    VacuumReport,
]


def section(title: str) -> str:
    """The text below a heading of the second level, up to the next one."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/api.md has no section {title}"
    return found[1]


def entries(title: str) -> list[str]:
    """The headings of the third level in a section, without their marks."""
    return [line.replace("`", "") for line in re.findall(r"^### (.*)$", section(title), re.MULTILINE)]


def call_of(name: str, function: Callable[..., Any], *, is_method: bool) -> str:
    """A call as the page writes it: parameters and defaults, no types."""
    parameters = list(inspect.signature(function).parameters.values())[is_method:]
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    shown = str(inspect.Signature(bare))
    return f"{name}{shown}"


def members(kind: type) -> list[str]:
    """The public members of a class, as the page writes them."""
    found = []
    for name, value in {name: value for base in kind.__mro__[-2::-1] for name, value in vars(base).items()}.items():
        if name.startswith("_"):
            continue
        found.append(f"{name} (property)" if isinstance(value, property) else call_of(name, value, is_method=True))
    return found


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_member_of_a_class_is_listed(name: str) -> None:
    """A method that is new, gone or has another signature fails here until the page says so."""
    assert sorted(entries(f"`{name}`")) == sorted(members(CLASSES[name]))


@pytest.mark.parametrize(("title", "kind"), [("Deltas", Delta), ("Frozen parts of deltas", Frozen)])
def test_every_member_of_a_delta_is_listed(title: str, kind: type) -> None:
    """They have no public name, as only `StateStore.delta` makes them, and are used all the same."""
    assert sorted(entries(title)) == sorted(members(kind))


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - CLASSES.keys() - set(errors.__all__)))
def test_a_function_is_listed_with_its_defaults(name: str) -> None:
    """The options of `connect`, for example, are the settings of a store."""
    assert entries(f"`{name}`") == [call_of(name, PUBLIC[name], is_method=False)]


def test_every_public_name_has_a_section() -> None:
    """A section for each class and function, and one list of all errors."""
    titles = re.findall(r"^## `(\w+)`$", PAGE, re.MULTILINE)
    listed = re.findall(r"`(\w+)`", section("Errors"))
    assert sorted(titles + listed) == sorted(PUBLIC)
    assert sorted(listed) == sorted(errors.__all__)


def test_every_public_name_of_procedures_is_listed() -> None:
    """The errors of the store that their calls raise included; each can be imported from there."""
    listed = set(re.findall(r"`(\w+)`", section("Procedures"))) - {"submit"}
    assert listed == set(procedures.__all__)
    assert all(hasattr(procedures, name) for name in listed)
    assert procedures.InvalidBatch is tussock.statestore.InvalidBatch
    assert procedures.SchemaMismatch is tussock.statestore.SchemaMismatch


def test_every_public_name_of_functions_is_listed() -> None:
    """Each can be imported from there, and `dir` shows it, also the client, which is loaded when it is asked for."""
    listed = set(re.findall(r"`(\w+)`", section("Functions")))
    assert listed == set(functions.__all__) == set(dir(functions))
    assert all(hasattr(functions, name) for name in listed)


def test_every_public_name_of_changelog_is_listed() -> None:
    """Each can be imported from there, also the client, which is loaded when it is asked for."""
    listed = set(re.findall(r"`(\w+)`", section("Changelog")))
    assert listed == set(changelog.__all__)
    assert all(hasattr(changelog, name) for name in listed)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_of_a_record_is_listed(record: type[msgspec.Struct]) -> None:
    """The fields on which a program may rely, in their order."""
    assert fields_listed(record.__name__) == list(record.__struct_fields__)


def test_every_property_of_a_version_is_listed() -> None:
    """Every backend's version has them."""
    properties = [name for name, value in vars(VersionView).items() if isinstance(value, property)]
    assert sorted(fields_listed("VersionView")) == sorted(properties)


def fields_listed(record: str) -> list[str]:
    """The names in a record's row, up to the semicolon that its methods follow."""
    row = re.search(rf"^\| `{record}` \| (.*) \|$", section("Records"), re.MULTILINE)
    assert row, f"docs/api.md has no row for {record}"
    return re.findall(r"`(\w+)`", row[1].partition(";")[0])
