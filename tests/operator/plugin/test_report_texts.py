"""What a report leaves out of texts and objects, and how large it becomes, without a cluster."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tussock.operator.plugin.kubectl import KubectlFailed
from tussock.operator.plugin.report.archive import ReportBounds, new_archive
from tussock.operator.plugin.report.redaction import LEFT_OUT, Redactor, hidden_values, values_of_secret

HIDDEN = "Zq7-nobody-knows"


@pytest.mark.parametrize(
    "text",
    [
        "https://user:{}@host:9000/path",
        "postgres://{}@host/db",
        "https://host/?a=1&X-Amz-Signature={}&b=2",
        "https://host/?access_token={}",
        "Authorization: Bearer {}",
        '{{"headers": {{"authorization": "Basic {}"}}}}',
        "authorization: AWS4-HMAC-SHA256 Credential=AK/x, Signature={}",
        "password={}",
        "password: {}",
        "DB_PASSWORD='{}'",
        'aws_secret_access_key = "{}"',
        '"client_secret": "{}"',
        '"event": "{{\\"password\\": \\"{}\\"}}"',
        "spark.hadoop.fs.s3a.secret.key={}",
        "fs.azure.account.key.x.dfs.core.windows.net={}",
        "--api-key {} --rows 3",
        '["--password", "{}"]',
        "AccountKey={};EndpointSuffix=core.windows.net",
        "tussock_Zq7{}0123456789",
        "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n{}",
    ],
)
def test_what_looks_like_a_secret_is_left_out(text: str) -> None:
    """By its looks alone, and not what stands around it."""
    shown = Redactor([]).text(f"before {text.format(HIDDEN)} after")
    assert HIDDEN not in shown
    assert LEFT_OUT in shown
    assert shown.startswith("before ")


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-27T21:38:49.748Z leading term=2 address=10.1.0.1:7370",
        '{"event": "call", "method": "GetStatus", "ms": 3.1, "passes": 7, "bypassed": true}',
        "tussock_operator_passes_total 3.0",
        "s3://states/first/log/00000000000000000017.delta was read",
        "GET https://minio.data.svc:9000/states?list-type=2&prefix=sst",
        "Secret keys is missing; create it (SecretNotFound)",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor(["another-value"]).text(text) == text


@pytest.mark.parametrize(
    ("value", "text", "shown"),
    [
        # In words of others a short value is chance.
        ("on", "once on and on", f"once {LEFT_OUT} and {LEFT_OUT}"),
        ("flights", "the flights-meta of flights", f"the flights-meta of {LEFT_OUT}"),
        ("flights7", "xflights7x", f"x{LEFT_OUT}x"),
        # The names of everything have these.
        ("tussock", "tussock.dev", "tussock.dev"),
        ("a b\nc", 'said "a b\\nc"', f'said "{LEFT_OUT}"'),
        ("", "nothing", "nothing"),
    ],
)
def test_known_values_are_left_out(value: str, text: str, shown: str) -> None:
    assert Redactor([value]).text(text) == shown


def test_the_key_in_the_file_of_a_clouds_account_is_left_out() -> None:
    """A log shows the key, and not the file."""
    account = {"data": {"key.json": "eyJwcml2YXRlX2tleSI6ICJhYmNkZWZnaGlqa2xtbm9wIiwgInR5cGUiOiAieCJ9"}}
    assert Redactor(values_of_secret(account)).text("key abcdefghijklmnop") == f"key {LEFT_OUT}"


def test_a_redacted_object_keeps_what_tells_what_is_wrong() -> None:
    """Names, numbers, switches and references to secrets; not what others wrote into annotations and variables."""
    body: dict[str, Any] = {
        "metadata": {
            "name": "x",
            "managedFields": [{"manager": HIDDEN}],
            "annotations": {"tussock.dev/applied": "4f", "example.com/x": HIDDEN},
        },
        "spec": {
            "replicas": 3,
            "automountServiceAccountToken": False,
            "objectStore": {"s3": {"credentialsSecret": {"name": "keys"}}},
            "volumes": [{"name": "tls", "secret": {"secretName": "x-tls", "defaultMode": 288}}],
            "sparkConf": {"spark.executor.cores": "2", "spark.x.password": HIDDEN},
            "env": [{"name": "LEVEL", "value": "info"}, {"name": "KEY", "value": HIDDEN}],
            "arguments": ["--rows", "3", f"--key={HIDDEN}", f"-p{HIDDEN}2", HIDDEN],
        },
    }
    shown = Redactor([]).body(body)
    assert HIDDEN not in json.dumps(shown)
    assert shown["metadata"]["annotations"] == {"tussock.dev/applied": "4f", "example.com/x": LEFT_OUT}
    spec = shown["spec"]
    assert (spec["replicas"], spec["automountServiceAccountToken"]) == (3, False)
    assert spec["objectStore"] == body["spec"]["objectStore"]
    assert spec["volumes"] == body["spec"]["volumes"]
    assert spec["sparkConf"]["spark.executor.cores"] == "2"
    assert spec["env"][0] == {"name": "LEVEL", "value": LEFT_OUT}
    assert spec["arguments"][0] == "--rows"
    assert spec["arguments"][2] == f"--key={LEFT_OUT}"
    # A log repeats what was left out, and is not emptied of every level that it has.
    assert set(hidden_values(body)) == {HIDDEN, f"{HIDDEN}2"}


def test_a_report_is_bounded(tmp_path: Path) -> None:
    """A file is cut at its beginning; when the report is full the others are noted, and the last one has room."""
    path = tmp_path / "r.tar.gz"
    with new_archive(path, "r", 0, ReportBounds(bytes_max=2_000, file_bytes_max=1_000)) as archive:
        archive.add("a", "x" * 5_000 + "end")
        archive.add("b", "y" * 900)
        archive.add("c", "z" * 900)
        archive.close_with("report.json", json.dumps(archive.left_out))
    with tarfile.open(path) as tar:
        files = {one.name: tar.extractfile(one).read() for one in tar.getmembers()}  # type: ignore[union-attr]
    assert list(files) == ["r/a", "r/b", "r/report.json"]
    assert files["r/a"].endswith(b"xend")
    assert len(files["r/a"]) == 1_000
    assert json.loads(files["r/report.json"]) == ["a: all but the last 1000 of 5003 bytes", "c: the report is full"]


def test_a_report_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Nor does one whose place was taken while it was made."""
    path = tmp_path / "r.tar.gz"
    with pytest.raises(ZeroDivisionError), new_archive(path, "r", 0):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KubectlFailed, match="exists, and is not overwritten"), new_archive(path, "r", 0):
        path.write_text("mine")
    assert [one.read_text() for one in tmp_path.iterdir()] == ["mine"]
