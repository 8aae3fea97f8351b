"""Sources of the service's settings, their order, and messages about mistakes."""

import re
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import asdict

from support.network.certificates import Authority
from support.service.meta_process import TUSSOCK
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.node.settings.sources import options, parse_flags, shown
from tussock.meta.server.settings.form import load_settings
from tussock.meta.server.settings.model import MetaSettings, node_options
from tussock.statestore.errors import InvalidOption

DOCS = Path(__file__).resolve().parents[3] / "docs" / "meta-service.md"
SECRET = "hunter2-is-secret"
OPTIONS = MetaSettings, "TUSSOCK_META_"
LEASE = "leader.lease_seconds"
LEASE_VARIABLE = "TUSSOCK_META_LEADER__LEASE_SECONDS"


def load(flags: dict[str, str] | None = None, environ: dict[str, str] | None = None, file: str = "") -> MetaSettings:
    return load_settings({"store": "file:///tmp/x", **(flags or {})}, environ or {}, file or None)


def refusal(flags: dict[str, str] | None = None, environ: dict[str, str] | None = None, file: str = "") -> list[str]:
    """The problems in the refusal."""
    with pytest.raises(InvalidOption) as raised:
        load(flags, environ, file)
    return [line.removeprefix("- ") for line in str(raised.value).splitlines()[1:]]


def toml(folder: Path, text: str) -> str:
    path = folder / "meta.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("flag", "variable", "in_file", "expected"),
    [
        (None, None, None, 3.0),
        (None, None, 4, 4.0),
        (None, "5", None, 5.0),
        (None, "5", 4, 5.0),
        ("6", None, None, 6.0),
        ("6", None, 4, 6.0),
        ("6", "5", None, 6.0),
        ("6", "5", 4, 6.0),
    ],
)
def test_flag_beats_environment_beats_file_beats_default(
    tmp_path: Path, flag: str | None, variable: str | None, in_file: int | None, expected: float
) -> None:
    """All eight cases of one option that each source sets or leaves out."""
    file = toml(tmp_path, f"[leader]\nlease_seconds = {in_file}") if in_file else ""
    settings = load({LEASE: flag} if flag else {}, {LEASE_VARIABLE: variable} if variable else {}, file)
    assert settings.leader.lease_seconds == expected


def test_options_of_a_group_may_come_from_several_sources(tmp_path: Path) -> None:
    """Groups are no units: each option comes from the first source that sets it."""
    authority = Authority(tmp_path)
    pair, ca = authority.sign("meta"), str(authority.certificate)
    file = toml(
        tmp_path,
        f'[tls]\ncertificate = "{pair.certificate}"\nkey = "k"\n[tls.roles]\nreader = ["CN:a"]\nadmin = ["CN:file"]',
    )
    environ = {"TUSSOCK_META_TLS__CLIENT_CA": ca, "TUSSOCK_META_TLS__ROLES__ADMIN": "CN:b, OU:c"}
    tls = load({"tls.key": str(pair.key)}, environ, file).tls
    assert (tls.certificate, tls.key, tls.client_ca) == (str(pair.certificate), str(pair.key), ca)
    assert (tls.roles.reader, tls.roles.admin) == (("CN:a",), ("CN:b", "OU:c"))


def test_environment_can_name_the_file(tmp_path: Path) -> None:
    """`TUSSOCK_META_CONFIG` names it if no flag does."""
    file = toml(tmp_path, "drain_seconds = 1.5")
    assert load(environ={"TUSSOCK_META_CONFIG": file}).drain_seconds == 1.5


def test_all_problems_are_reported_with_their_places(tmp_path: Path) -> None:
    """One start reports all mistakes, each with its flag, variable or file."""
    file = toml(tmp_path, 'colour = "red"\n[vacuum]\ninterval_seconds = -1\n[log]\nformat = "xml"')
    problems = refusal(
        {"leader.lease_seconds": "0", "no.such": "1"},
        {"TUSSOCK_META_LISTEN": "7370", "TUSSOCK_META_LISTENS": "x", "TUSSOCK_META_LOG__FORMAT": "yaml"},
        file,
    )
    expected = {
        "--leader.lease-seconds": "greater than 0",
        "--no.such": "no such option",
        "TUSSOCK_META_LISTEN": "HOST:PORT",
        "TUSSOCK_META_LISTENS": "no such option",
        "TUSSOCK_META_LOG__FORMAT": "'json' or 'text'",
        f"vacuum.interval_seconds ({file})": "greater than or equal to 0",
        f"colour ({file})": "no such option",
    }
    told = dict(problem.split(": ", 1) for problem in problems)
    assert told.keys() == expected.keys()
    for place, text in expected.items():
        assert text in told[place]


def test_store_is_required_and_says_how() -> None:
    """Without a store there is nothing to serve; the message says how to set one."""
    with pytest.raises(InvalidOption, match="store: is required: give --store, TUSSOCK_META_STORE"):
        load_settings({}, {})


@pytest.mark.parametrize("text", ["[leader", "leader = 3", "listen = 7370", "\xff"])
def test_file_of_the_wrong_shape_is_named(tmp_path: Path, text: str) -> None:
    """Broken TOML, a value for a group, a number for text, and bytes that are no text: each error names the file."""
    path = tmp_path / "meta.toml"
    path.write_bytes(text.encode("latin-1"))
    (problem,) = refusal(file=str(path))
    assert str(path) in problem


def test_a_name_with_a_dot_is_no_path_into_an_option(tmp_path: Path) -> None:
    """A quoted key of TOML may look like an option within one that holds text."""
    assert refusal(file=toml(tmp_path, '"store.x" = 1')) == ["store.x: there is no such option"]


def test_file_that_is_missing_is_named() -> None:
    """A file that was named and is missing is no reason to use defaults."""
    (problem,) = refusal(file="/nowhere/meta.toml")
    assert problem == "/nowhere/meta.toml: cannot be read: No such file or directory"


@pytest.mark.parametrize("text", ["[leader", None])
def test_a_file_that_cannot_be_read_is_the_only_problem(tmp_path: Path, text: str | None) -> None:
    """What it would have said is not missing, the store neither, and what a flag says wrong is still told."""
    file = tmp_path / "meta.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidOption) as raised:
        load_settings({"tls.client_ca": __file__, "tls.roles.admin": "CN:a"}, {}, str(file))
    problems = str(raised.value).splitlines()[1:]
    assert [problem.partition(": ")[0] for problem in problems] == [f"- {file}", "- --tls.client-ca"]


def test_files_that_cannot_be_used_are_named_by_their_settings(tmp_path: Path) -> None:
    """All at once, beside other mistakes: missing files, such as hold something else, a key of another certificate."""
    authority = Authority(tmp_path)
    pair, other = authority.sign("meta"), authority.sign("other")
    (tmp_path / "tokens").write_text("spark writer\n")
    file = toml(
        tmp_path,
        f'[tls]\ncertificate = "{pair.certificate}"\nclient_ca = "{pair.key}"\nroles.admin = ["ops"]\nrevoked = ["b"]',
    )
    environ = {"TUSSOCK_META_TLS__KEY": str(other.key), "TUSSOCK_META_TOKENS__FILE": str(tmp_path / "tokens")}
    told = dict(problem.split(": ", 1) for problem in refusal({"drain_seconds": "-1"}, environ, file))
    expected = {
        "--drain-seconds": "greater than",
        f"tls.certificate ({file})": "KEY_VALUES_MISMATCH",
        f"tls.client_ca ({file})": "holds no PEM certificates",
        f"tls.roles.admin ({file})": "'ops' should be one of CN",
        f"tls.revoked ({file})": "'b' should be one of CN",
        "TUSSOCK_META_TOKENS__FILE": "line 1: should be NAME ROLES sha256:HEX",
    }
    assert told.keys() == expected.keys()
    for place, text in expected.items():
        assert text in told[place]
    missing = {"tls.certificate": SECRET, "tls.key": "/", "tls.client_ca": "a\0b", "tokens.file": SECRET}
    assert refusal(missing) == [
        "--tls.certificate: the file cannot be read: No such file or directory",
        "--tls.key: the file cannot be read: Is a directory",
        "--tls.client-ca: this is no name of a file",
        "--tokens.file: the file cannot be read: No such file or directory",
    ]


def test_a_group_with_a_misfit_is_not_searched_for_contradictions(tmp_path: Path) -> None:
    """What was given wrong would be missed there; other groups are searched."""
    file = toml(tmp_path, '[tls]\ncertificate = 3\nclient_ca = "/nowhere"\n[compaction]\nl0_merge_max = 3')
    places = [problem.partition(":")[0].partition(" ")[0] for problem in refusal({}, {}, file)]
    assert places == ["tls.certificate", "compaction.l0_merge_max", "tls.client_ca"]


@pytest.mark.parametrize(
    ("flags", "name", "text"),
    [
        ({"tls.certificate": "c"}, "tls.key", "belong together"),
        ({"tls.key": "k"}, "tls.certificate", "belong together"),
        ({"tls.client_ca": "ca"}, "tls.client_ca", "over TLS"),
        ({"tls.certificate": "c", "tls.key": "k", "tls.client_ca": "ca"}, "tls.roles", "no certificate would have"),
        ({"tls.roles.reader": "CN:a"}, "tls.roles", "not asked for"),
        ({"tls.revoked": "CN:a"}, "tls.revoked", "not asked for"),
        ({"tls.revoked": "dashboard-1"}, "tls.revoked", "should be one of CN, OU, URI, DNS, a colon"),
        ({"tls.roles.admin": "ops"}, "tls.roles.admin", "should be one of CN, OU, URI, DNS, a colon"),
        ({"bucket.endpoint": "localhost:9000"}, "bucket.endpoint", "expected a URL of a server"),
        ({"credentials.sts_endpoint": "http://a b"}, "credentials.sts-endpoint", "expected a URL of a server"),
        ({"compaction.l0_merge_max": "3"}, "--compaction.l0-merge-max", "less than"),
        ({"compaction.l0_stall_runs": "12"}, "--compaction.l0-stall-runs", "before L0 is full"),
        ({"credentials.mode": "static"}, "--credentials.mode", "s3:// stores only"),
    ],
)
def test_values_that_contradict_each_other_are_refused(flags: dict[str, str], name: str, text: str) -> None:
    """Each value is right alone."""
    problem = next(problem for problem in refusal(flags) if text in problem)
    assert problem.replace("tls.roles (flag)", "tls.roles").startswith((name, "--" + name.replace("_", "-")))


@pytest.mark.parametrize(
    ("flags", "environ", "in_file"),
    [
        ({"credentials.secret_access_key": SECRET}, {}, ""),
        ({"credentials.secret_acess_key": SECRET}, {}, ""),
        ({"log.level": SECRET}, {}, ""),
        ({"store": f"s3://key:{SECRET}@bucket/x"}, {}, ""),
        ({}, {"TUSSOCK_META_CREDENTIALS__SECRET": SECRET}, ""),
        ({}, {"TUSSOCK_META_LISTEN": SECRET}, ""),
        ({}, {}, f'[credentials]\nsecret_access_key = ["{SECRET}"]'),
        ({}, {}, f'secret_access_key = "{SECRET}"'),
        ({}, {}, f'[limits]\nmessage_bytes = "{SECRET}"'),
        ({}, {}, f'credentials = "{SECRET}"'),
    ],
)
def test_no_refusal_repeats_a_secret(
    tmp_path: Path, flags: dict[str, str], environ: dict[str, str], in_file: str
) -> None:
    """A secret may be in the wrong place; no error shows it."""
    file = toml(tmp_path, in_file) if in_file else ""
    assert SECRET not in "".join(refusal(flags, environ, file))


def test_secrets_of_good_settings_are_not_shown() -> None:
    """Neither the output of `tussock meta settings` nor the representation has them."""
    settings = load({"store": "s3://b/x"}, {"TUSSOCK_META_CREDENTIALS__SECRET_ACCESS_KEY": SECRET})
    assert settings.credentials.secret_access_key.get_secret_value() == SECRET
    assert SECRET not in f"{shown(settings)}{settings!r}{settings}"
    assert shown(settings)["credentials.secret_access_key"] == "**********"


def test_variables_of_a_kubernetes_service_are_ignored() -> None:
    """A Service called `tussock-meta` puts these into every pod beside it."""
    links = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_GRPC", "PORT", "PORT_7370_TCP", "PORT_7370_TCP_ADDR"]
    load(environ={f"TUSSOCK_META_{link}": "tcp://10.0.0.1:7370" for link in links})
    clashes = [
        option.variable for option in options(*OPTIONS) if re.match("TUSSOCK_META_(SERVICE|PORT)", option.variable)
    ]
    assert clashes == []


def test_flags_come_in_both_forms() -> None:
    """`--name VALUE` and `--name=VALUE`, with dashes or underscores."""
    assert parse_flags(["--leader.lease-seconds", "2", "--store=a=b", "--drain_seconds", "1"]) == {
        "leader.lease_seconds": "2",
        "store": "a=b",
        "drain_seconds": "1",
    }


@pytest.mark.parametrize("arguments", [["--store"], [SECRET], ["--store", "a", SECRET]])
def test_unknown_arguments_are_refused_without_showing_them(arguments: list[str]) -> None:
    """A flag without a value, and a value without a flag."""
    with pytest.raises(InvalidOption) as raised:
        parse_flags(arguments)
    assert SECRET not in str(raised.value)


def test_all_options_of_compaction_reach_the_picker() -> None:
    """Every option of compaction reaches the picker; none is only documented."""
    flags = {"compaction.base_bytes": "11", "compaction.task_bytes_max": "12", "compaction.l0_stall_runs": "99"}
    told = node_options(load({**flags, "session.lease_seconds": "7"}), "meta-0:7370", {"AWS_REGION": "x"})
    assert (told.session_lease_seconds, told.address, told.store_options) == (7.0, "meta-0:7370", {"AWS_REGION": "x"})
    assert (told.picker.base_bytes, told.picker.task_bytes_max, told.picker.l0_stall_runs) == (11, 12, 99)
    assert node_options(load(), "", {}).picker == PickerConfig()
    sizes = {name.removeprefix("compaction.") for name in shown(load()) if name.startswith("compaction.")}
    assert sizes & asdict(PickerConfig()).keys() == sizes - {"tasks_per_table", "stuck_seconds"}


def test_documents_list_every_option() -> None:
    """`docs/meta-service.md` has a row for each option, with its default and the code's description."""
    section = DOCS.read_text(encoding="utf-8").partition("\n## Settings\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z0-9_.]+)` \| (.*) \|$", section, re.MULTILINE))
    expected = {
        option.name: f"{f'`{option.default}` ' if option.default else ''}| {option.field.description}"
        for option in options(*OPTIONS)
    }
    assert rows == expected


@pytest.mark.parametrize("command", ["serve", "settings"])
def test_process_reports_wrong_settings_and_ends(command: str) -> None:
    """The command ends with code 2 and a line for each problem."""
    wrong = ("--log.level", SECRET, "--leader.lease-seconds=-1", "--tokens.file", SECRET, "--tls.roles.admin", "ops")
    ran = subprocess.run(
        [TUSSOCK, "meta", command, *wrong],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2
    assert [line.split(":")[0] for line in ran.stderr.splitlines()[1:]] == [
        "- store",
        "- --leader.lease-seconds",
        "- --log.level",
        "- tls.roles (flag)",
        "- --tls.roles.admin",
        "- --tokens.file",
    ]
    assert SECRET not in ran.stderr + ran.stdout
