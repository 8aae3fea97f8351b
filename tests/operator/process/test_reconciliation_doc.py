"""The tables of `docs/operator/reconciliation.md` match the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from tussock.operator.metrics import OperatorMetrics
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.settings import OperatorSettings, load_settings
from tussock.statestore.errors import InvalidOption

DOC = (Path(__file__).resolve().parents[3] / "docs" / "operator" / "reconciliation.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the last table below a heading."""
    section = DOC.split(f"## {heading}\n")[1].split("\n## ")[0]
    table = section.strip().split("\n\n")
    tables = [block for block in table if block.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in tables[-1].splitlines()[2:]]


def test_every_reason_is_explained() -> None:
    assert [row[0] for row in rows("Conditions and reasons")] == [str(reason) for reason in Reason]


def test_every_setting_is_listed() -> None:
    """With its default and its description."""
    listed = {row[0]: (row[1], row[2].replace("`", "")) for row in rows("Settings")}
    fields = OperatorSettings.model_fields
    assert listed.keys() == {"--" + name.replace("_", "-") for name in fields}
    for name, field in fields.items():
        default, text = listed["--" + name.replace("_", "-")]
        assert text == (field.description or "").replace("`", "")
        if isinstance(field.default, str | int):
            assert default == str(field.default)
        else:
            assert field.default in ((), PydanticUndefined)


def test_every_metric_is_listed() -> None:
    metrics = OperatorMetrics()
    metrics.request("apply", "Pod", 200)
    metrics.passes.labels("Meta").observe(1)
    metrics.errors.labels("Meta").inc()
    text = metrics.render().decode()
    found = {
        name: help_text for name, help_text in re.findall(r"# HELP (tussock_\w+) (.*)", text) if "_created" not in name
    }
    assert {row[0]: row[2] for row in rows("Metrics")} == found


def test_settings_come_from_flags_before_the_environment() -> None:
    environ = {"TUSSOCK_OPERATOR_NAMESPACES": "a, b", "TUSSOCK_OPERATOR_LEASE_NAME": "x"}
    settings = load_settings(["--lease-name", "y", "--http-listen=127.0.0.1:0"], environ)
    assert (settings.namespaces, settings.lease_name, settings.http_listen) == (("a", "b"), "y", "127.0.0.1:0")
    assert load_settings([], {}).namespaces == ()


def test_help_shows_every_setting() -> None:
    """With its description, its default and its variable; nothing is started.

    Story: `--help` was answered with "there is no such option".
    """
    done = subprocess.run([sys.executable, "-m", "tussock.operator", "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("  --")}
    assert lines.keys() == {row[0] for row in rows("Settings")}
    assert lines["--log-level"].endswith("lowest severity to log [info]")
    assert "TUSSOCK_OPERATOR_LEASE_NAME" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "environ", "words"),
    [
        (["--colour", "x"], {}, "--colour: there is no such option"),
        (["--lease-name"], {}, "--lease-name needs a value"),
        (["--http-listen", "here"], {}, "--http-listen (TUSSOCK_OPERATOR_HTTP_LISTEN): should be HOST:PORT"),
        ([], {"TUSSOCK_OPERATOR_LOG_FORMAT": "xml"}, "--log-format (TUSSOCK_OPERATOR_LOG_FORMAT): Input should be"),
    ],
)
def test_settings_that_do_not_work_are_named(arguments: list[str], environ: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption) as error:
        load_settings(arguments, environ)
    assert words in str(error.value)
