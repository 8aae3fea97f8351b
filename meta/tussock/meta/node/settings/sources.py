"""Where settings come from: flags before environment before file before defaults, each named when it is wrong.

The file is TOML: Python reads it without a further package, it has comments and types, and groups of options read
well in it. All problems of all sources are told at once, with the place of each, and without the values of options
that hold text, since a secret may stand in the wrong place.
"""

import copy
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from tussock.meta.node.settings.files import unusable_files
from tussock.statestore.errors import InvalidOption

__all__ = ["Option", "SettingsForm", "load_form", "options", "parse_flags", "shown"]

# Kubernetes puts these into every pod beside a Service called `tussock-meta`; they are not ours.
_SERVICE_LINKS = re.compile(r"(SERVICE_\w+|PORT(_\d+_\w+)?)")

Tree = dict[str, Any]
S = TypeVar("S", bound=BaseModel)


class SettingsForm(NamedTuple, Generic[S]):
    """The settings of one kind of node."""

    model: type[S]
    """With groups `tls` and `tokens`."""
    prefix: str
    """Of its variables."""
    contradictions: Callable[[S], Sequence[tuple[str, str]]]
    placeholders: Mapping[str, str]
    """Values of required options, for looking at the others where these are missing."""


class Option(NamedTuple):
    """One option."""

    name: str
    """As in the file, its group first: `leader.lease_seconds`."""
    field: FieldInfo
    prefix: str
    """Of its variable."""

    @property
    def variable(self) -> str:
        """`TUSSOCK_META_LEADER__LEASE_SECONDS`."""
        return self.prefix + self.name.replace(".", "__").upper()

    @property
    def flag(self) -> str:
        """`--leader.lease-seconds`."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_secret(self) -> bool:
        """Never shown, and not taken as a flag, which every user of the machine could read."""
        return SecretStr in (self.field.annotation, *get_args(self.field.annotation))

    @property
    def default(self) -> str:
        """As the file would say it; empty for an option that has none."""
        value = self.field.get_default(call_default_factory=True)
        if self.field.is_required() or value is None or value in ("", ()) or self.is_secret:
            return ""
        return str(value).lower() if isinstance(value, bool) else str(value)


def options(model: type[BaseModel], prefix: str, group: str = "") -> Iterator[Option]:
    """All options, in the order of the file; `prefix` is that of their variables."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from options(kind, prefix, f"{group}{name}.")
        else:
            yield Option(group + name, field, prefix)


def load_form(
    form: SettingsForm[S], flags: Mapping[str, str], environ: Mapping[str, str], file: str | None = None
) -> S:
    """The settings of this process; `InvalidOption` with everything that is wrong, a line each.

    `flags` are values by name of the option. `file` is what the flag `--config` says; without it the environment may
    name one.
    """
    known = {option.name: option for option in options(form.model, form.prefix)}
    problems: list[str] = []
    config = file or environ.get(form.prefix + "CONFIG")
    of_file = _from_file(config, problems) if config else {}
    # Without the file it is not known what is missing, nor what contradicts what.
    is_whole = of_file is not None
    sources: list[tuple[str, Tree]] = [
        ("flag", _from_flags(flags, known, problems)),
        ("environment", _from_environment(form.prefix, environ, known, problems)),
        (config or "", of_file or {}),
    ]
    merged: Tree = {}
    for _, tree in reversed(sources):
        _merge(merged, tree)
    misfits: set[str] = set()
    try:
        settings: S | None = form.model.model_validate(merged)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            misfits.add(_name(found["loc"]))
            if is_whole or found["type"] != "missing":
                problems.append(_describe(found, sources, known))
        settings = _without(form, misfits, merged)
    if settings is not None:
        disagreeing = _known_contradictions(form, settings, misfits) if is_whole else []
        wrong = [*disagreeing, *unusable_files(settings)]
        problems += [f"{_where(name, sources, known)}: {text}" for name, text in wrong]
        if not problems:
            return settings
    raise InvalidOption("the service's settings do not work:\n" + "\n".join(f"- {problem}" for problem in problems))


def parse_flags(arguments: Sequence[str]) -> dict[str, str]:
    """Values by name of the option, of `--group.option VALUE` and `--group.option=VALUE`; `InvalidOption` if odd."""
    flags: dict[str, str] = {}
    left = list(arguments)
    while left:
        flag, separator, value = left.pop(0).partition("=")
        if not flag.startswith("--"):
            # Not repeated: it may be a value that stands where no value belongs, a secret too.
            raise InvalidOption("an argument of the service does not begin with '--'; options are --name VALUE")
        if not separator:
            if not left:
                raise InvalidOption(f"{flag} needs a value")
            value = left.pop(0)
        flags[flag[2:].replace("-", "_")] = value
    return flags


def shown(settings: BaseModel) -> dict[str, object]:
    """All options with their values, in the order of the file; a secret only tells whether it is set."""
    values: dict[str, object] = {}
    for option in options(type(settings), ""):
        value: Any = settings
        for part in option.name.split("."):
            value = getattr(value, part)
        values[option.name] = str(value) if isinstance(value, SecretStr) else value
    return values


def _from_flags(flags: Mapping[str, str], known: Mapping[str, Option], problems: list[str]) -> Tree:
    tree: Tree = {}
    for name, value in flags.items():
        if name not in known:
            problems.append(f"{'--' + name.replace('_', '-')}: there is no such option")
        elif known[name].is_secret:
            option = known[name]
            problems.append(f"{option.flag}: everybody on the machine can read a flag; set {option.variable}")
        else:
            _put(tree, name, value)
    return tree


def _from_environment(
    prefix: str, environ: Mapping[str, str], known: Mapping[str, Option], problems: list[str]
) -> Tree:
    tree: Tree = {}
    names = {option.variable: option.name for option in known.values()}
    for variable in sorted(environ):
        name = variable.removeprefix(prefix)
        if name == variable or name == "CONFIG" or _SERVICE_LINKS.fullmatch(name):
            continue
        if variable not in names:
            problems.append(f"{variable}: there is no such option")
        else:
            _put(tree, names[variable], environ[variable])
    return tree


def _from_file(file: str, problems: list[str]) -> Tree | None:
    """What the file says; `None` if it cannot be read, which is a problem."""
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"{file}: cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        problems.append(f"{file}: is not UTF-8 text")
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{file}: is not TOML: {error}")
    return None


def _put(tree: Tree, name: str, value: str) -> None:
    *groups, last = name.split(".")
    for group in groups:
        tree = tree.setdefault(group, {})
    tree[last] = value


def _merge(into: Tree, tree: Tree) -> None:
    for name, value in tree.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = dict(value) if isinstance(value, dict) else value


def _where(name: str, sources: Sequence[tuple[str, Tree]], known: Mapping[str, Option]) -> str:
    """The option and the place that its value comes from."""
    for source, tree in sources:
        value: Any = tree
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            option = known.get(name)
            if option is None or source not in ("flag", "environment"):
                return f"{name} ({source})" if source else name
            return option.flag if source == "flag" else option.variable
    return name


def _without(form: SettingsForm[S], misfits: set[str], merged: Tree) -> S | None:
    """The settings without these options, to find what else is wrong; `None` if they are still no settings."""
    rest = copy.deepcopy(merged)
    for name in misfits:
        *groups, last = name.split(".")
        tree: Any = rest
        for group in groups:
            tree = tree.get(group) if isinstance(tree, dict) else None
        if isinstance(tree, dict):
            tree.pop(last, None)
    for name, value in form.placeholders.items():
        rest.setdefault(name, value)
    try:
        return form.model.model_validate(rest)
    except ValidationError:
        return None


def _known_contradictions(form: SettingsForm[S], settings: S, misfits: set[str]) -> list[tuple[str, str]]:
    """The contradictions in groups whose options are all right; in the others they may come of what was left out."""
    groups = {name.partition(".")[0] for name in misfits}
    if "tokens" in groups:
        groups.add("tls")
    return [(name, text) for name, text in form.contradictions(settings) if name.partition(".")[0] not in groups]


def _name(loc: tuple[int | str, ...]) -> str:
    """The option that pydantic means. A position in a list is of no use to find the place; the list is."""
    return ".".join(part for part in loc if isinstance(part, str))


def _describe(found: Any, sources: Sequence[tuple[str, Tree]], known: Any) -> str:
    name = _name(found["loc"])
    if found["type"] == "missing":
        option = known[name]
        return f"{name}: is required: give {option.flag}, {option.variable}, or {name} in a configuration file"
    if found["type"] == "extra_forbidden":
        return f"{_where(name, sources, known)}: there is no such option"
    return f"{_where(name, sources, known)}: {found['msg'].removeprefix('Value error, ')}"
