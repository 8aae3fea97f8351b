"""`kubectl tussock report`: what it holds, and that no secret is in it, wherever in the cluster one stands."""

import base64
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from support.operator.plugin.commands import Answer, Kubelets, plugin
from support.operator.process import Objects
from support.operator.stores_in_cluster import unprobed_store
from tussock.operator.manifests.labels import MANAGED_BY, MANAGED_BY_LABEL, STORE_LABEL

CANARIES = {
    "in-secret": "k3y/of+the=bucket&x",
    "of-env": "correct horse battery",
    "of-argument": "opaque-argument-9f3",
    "of-flag": "flag-Value-77",
    "of-annotation": "annotated-S3cret",
    "of-applied": "applied-before-4711",
    "of-url": "url-passw0rd",
    "of-executor": "in-a-template-31415",
    "of-conf": "spark-conf-27182",
    "of-log-line": "only-in-the-log-1618",
    "of-query": "sig-of-a-url-1414",
    "of-message": "told-in-a-status-1732",
}
"""A value for each place; none of them looks like a key to a pattern."""
KEY = "\n".join(["-----BEGIN PRIVATE KEY-----", *(f"MIIlineOfAKey{number:04d}" for number in range(20)), "-----END"])
LABELS = {STORE_LABEL: "s", MANAGED_BY_LABEL: MANAGED_BY}


def container(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": "localhost/tussock-spark:test",
        "args": [
            *("python", "-m", "tussock.compute.driver", "/opt/app.py", CANARIES["of-argument"]),
            *("--password", CANARIES["of-flag"], f"--token={CANARIES['of-flag']}"),
        ],
        "env": [
            {"name": "DATABASE", "value": CANARIES["of-env"]},
            {"name": "TUSSOCK_WRITER_ID", "value": "job-1"},
            {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "s-bucket", "key": "secret-access-key"}}},
            {"name": "AWS_ENDPOINT_URL", "value": f"http://user:{CANARIES['of-url']}@minio:9000"},
        ],
        "livenessProbe": {
            "httpGet": {"path": "/", "port": 80, "httpHeaders": [{"name": "X-Key", "value": CANARIES["of-env"]}]}
        },
    }


def fill(objects: Objects) -> None:
    """A store and a pod of it, with a secret in every place where users have put one."""
    data = {"access-key-id": "tussock-user-17", "secret-access-key": CANARIES["in-secret"], "tls.key": KEY}
    objects.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s-bucket"}, "stringData": data})
    store = unprobed_store("s")
    store["metadata"]["annotations"] = {
        "example.com/note": CANARIES["of-annotation"],
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": {"x": CANARIES["of-applied"]}}),
    }
    objects.apply(store)
    held = {
        "type": "Ready",
        "status": "False",
        "reason": "BucketUnreachable",
        "message": f"GET https://x/?X-Amz-Signature={CANARIES['of-query']}: password={CANARIES['of-message']} is wrong",
        "lastTransitionTime": "2026-11-27T00:00:00Z",
    }
    objects.patch("StateStore", "s", {"status": {"conditions": [held]}}, "status")
    template = {"spec": {"containers": [{"name": "x", "env": [{"name": "A", "value": CANARIES["of-executor"]}]}]}}
    files = {
        "executor.json": json.dumps(template),
        "spark.conf": f"spark.hadoop.fs.s3a.secret.key={CANARIES['of-conf']}\nspark.executor.cores=2\n",
    }
    objects.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s-x", "labels": LABELS}, "data": files}
    )
    pod = {"metadata": {"name": "s-driver", "labels": LABELS}, "spec": {"containers": [container("compute")]}}
    objects.apply({"apiVersion": "v1", "kind": "Pod", **pod})
    ended = {"name": "compute", "ready": True, "restartCount": 1, "image": "", "imageID": ""}
    objects.patch("Pod", "s-driver", {"status": {"containerStatuses": [ended]}}, "status")
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "s.1"},
        "regarding": {"apiVersion": "tussock.dev/v1alpha1", "kind": "StateStore", "name": "s"},
        "eventTime": "2026-11-27T00:00:00.000000Z",
        "reportingController": "tussock.dev/operator",
        "reportingInstance": "one",
        "action": "Reconcile",
        "reason": "BucketUnreachable",
        "type": "Warning",
        "note": f"Authorization: Bearer {CANARIES['of-message']}",
    }
    event["regarding"]["namespace"] = objects.namespace  # type: ignore[index]
    objects.apply(event)


def log_text() -> str:
    """A log that repeats what others know, and has secrets that only a pattern finds."""
    basic = base64.b64encode(f"user:{CANARIES['in-secret']}".encode()).decode()
    quoted, escaped = quote(CANARIES["in-secret"], safe=""), json.dumps({"a": CANARIES["in-secret"]})
    return "\n".join(
        [
            "serving at 10.0.0.1:7370 with 3 tables",
            f"login with {CANARIES['in-secret']} and {CANARIES['of-env']}, {CANARIES['of-argument']}",
            f"sent {basic} and {quoted} and {escaped} and {CANARIES['of-executor']}",
            f'{{"event": "x", "db_password": "{CANARIES["of-log-line"]}", "rows": 17}}',
            f"postgres://me:{CANARIES['of-url']}@db:5432/x?sslmode=on",
            f"GET /b?X-Amz-Signature={CANARIES['of-query']}&a=1",
            KEY,
        ]
    )


@pytest.fixture
def kubelets(tmp_path: Path) -> Kubelets:
    found = Kubelets(tmp_path)
    found.know(logs={"s-driver": log_text()}, raw="tussock_operator_passes_total 3.0\n")
    return found


def files_of(path: Path) -> dict[str, str]:
    """The files of a report by their path below its one folder."""
    with tarfile.open(path) as tar:
        found = {one.name: tar.extractfile(one).read().decode() for one in tar.getmembers()}  # type: ignore[union-attr]
    [folder] = {name.partition("/")[0] for name in found}
    assert f"{folder}.tar.gz" == path.name
    return {name.partition("/")[2]: text for name, text in found.items()}


def made(folder: Path, told: Answer) -> Path:
    assert (told.returncode, told.stderr) == (0, "")
    [path] = folder.glob("*.tar.gz")
    assert told.stdout.startswith(f"{path.name} (")
    return path


def encodings(value: str) -> Iterator[str]:
    yield value
    yield quote(value, safe="")
    yield base64.b64encode(value.encode()).decode().rstrip("=")
    yield base64.b64encode(f"user:{value}".encode()).decode()[8:].rstrip("=")


@pytest.mark.parametrize("arguments", [("s",), ()])
def test_no_secret_is_in_a_report(
    objects: Objects, kubelets: Kubelets, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Of a store or of a namespace, in no encoding that texts have; and what is no secret is there."""
    fill(objects)
    path = made(tmp_path, plugin(objects, "report", *arguments, kubelets=kubelets, folder=tmp_path))
    assert path.stat().st_mode & 0o777 == 0o600
    files = files_of(path)
    whole = "\n".join(f"{name}\n{text}" for name, text in files.items())
    for place, value in CANARIES.items():
        for shown in encodings(value):
            assert shown not in whole, f"{place}: {shown}"
    for line in KEY.splitlines()[1:-1]:
        assert line not in whole
    assert not [name for name in files if name.startswith("objects/Secret")]
    pod = json.loads(files["objects/Pod/s-driver.json"])["spec"]["containers"][0]
    assert pod["args"][:4] == ["python", "-m", "tussock.compute.driver", "/opt/app.py"]
    env = {one["name"]: one.get("value", one.get("valueFrom")) for one in pod["env"]}
    assert env["TUSSOCK_WRITER_ID"] == "job-1"
    assert env["FROM_SECRET"] == {"secretKeyRef": {"name": "s-bucket", "key": "secret-access-key"}}
    assert env["AWS_ENDPOINT_URL"] == "http://<left out>@minio:9000"
    assert files["logs/s-driver/compute.log"].startswith("serving at 10.0.0.1:7370 with 3 tables\n")
    assert files["logs/s-driver/compute.before.log"].endswith(" of before")
    assert '"rows": 17' in files["logs/s-driver/compute.log"]
    assert "spark.executor.cores=2" in json.loads(files["objects/ConfigMap/s-x.json"])["data"]["spark.conf"]
    assert "BucketUnreachable" in files["summary.txt"]
    [event] = json.loads(files["events.json"])
    assert (event["reason"], event["message"]) == ("BucketUnreachable", "Authorization: <left out>")
    about = json.loads(files["report.json"])
    assert about["kubernetes"]["serverVersion"]["major"] == "1"
    assert about["not_answered"] == {}
    assert about["images"] == ["localhost/tussock-spark:test"]


def test_the_operators_log_and_metrics_are_in_it(objects: Objects, kubelets: Kubelets, tmp_path: Path) -> None:
    """From whichever namespace it runs in."""
    objects.apply(unprobed_store("s"))
    labels = {"app.kubernetes.io/name": "tussock-operator"}
    spec = {"containers": [{"name": "operator", "image": "localhost/tussock-operator:test"}]}
    name = f"{objects.namespace}-operator"
    objects.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})
    kubelets.know(logs={name: "leading\n"}, raw="tussock_operator_passes_total 3.0\n")
    try:
        files = files_of(made(tmp_path, plugin(objects, "report", "s", kubelets=kubelets, folder=tmp_path)))
    finally:
        objects.delete("Pod", name)
    assert files[f"operator/logs/{name}/operator.log"] == "leading\n"
    assert files[f"operator/metrics/{name}.txt"] == "tussock_operator_passes_total 3.0\n"


def test_what_is_not_the_stores_is_not_in_a_report_of_it(objects: Objects, kubelets: Kubelets, tmp_path: Path) -> None:
    fill(objects)
    objects.apply(unprobed_store("t"))
    spec = {"containers": [{"name": "x", "image": "x"}]}
    objects.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": spec})
    files = files_of(made(tmp_path, plugin(objects, "report", "s", kubelets=kubelets, folder=tmp_path)))
    assert [name for name in files if name.startswith("objects/StateStore/")] == ["objects/StateStore/s.json"]
    assert [name for name in files if name.startswith("objects/Pod/")] == ["objects/Pod/s-driver.json"]


def test_a_user_with_few_rights_gets_what_there_is(objects: Objects, kubelets: Kubelets, tmp_path: Path) -> None:
    """What is forbidden is noted. Without the values of secrets, patterns and the values of variables remain."""
    fill(objects)
    rules = [
        {"apiGroups": ["tussock.dev"], "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "viewer"}}
    objects.apply({**role, "kind": "Role", "rules": rules})
    subject = {"kind": "User", "name": "viewer", "apiGroup": "rbac.authorization.k8s.io"}
    granted = {"kind": "Role", "name": "viewer", "apiGroup": "rbac.authorization.k8s.io"}
    objects.apply({**role, "kind": "RoleBinding", "subjects": [subject], "roleRef": granted})
    config = yaml.safe_load(objects.kubeconfig.read_text())
    config["users"][0]["user"]["as"] = "viewer"
    viewer = tmp_path / "config"
    viewer.write_text(yaml.safe_dump(config))
    told = plugin(objects, "report", "s", kubelets=kubelets, folder=tmp_path, kubeconfig=viewer)
    files = files_of(made(tmp_path, told))
    refused = json.loads(files["report.json"])["not_answered"]
    assert "is forbidden" in refused["secrets, to take their values out of texts"]
    assert {"objects/ConfigMap", "events", "pods of the operator"} <= set(refused)
    log = files["logs/s-driver/compute.log"]
    assert CANARIES["in-secret"] in log, "it stands in no place that this user may read"
    for place in ("of-env", "of-argument", "of-log-line", "of-url", "of-query"):
        assert CANARIES[place] not in log
    assert "objects/StateStore/s.json" in files


def test_a_log_that_is_not_there_is_noted(objects: Objects, tmp_path: Path) -> None:
    """Without a kubelet there are no logs: the rest is in the report."""
    fill(objects)
    objects.bind("s-driver", "nowhere")
    files = files_of(made(tmp_path, plugin(objects, "report", "s", folder=tmp_path)))
    about = json.loads(files["report.json"])
    assert set(about["not_answered"]) >= {"logs/s-driver/compute.log"}
    assert "objects/Pod/s-driver.json" in files


def test_a_file_that_exists_is_not_overwritten(objects: Objects, kubelets: Kubelets, tmp_path: Path) -> None:
    """Nor one behind a link; nothing else is left behind."""
    objects.apply(unprobed_store("s"))
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_text("mine")
    os.symlink(tmp_path / "nowhere", link)
    for path in (there, link):
        told = plugin(objects, "report", "s", "-o", str(path), kubelets=kubelets)
        assert told.returncode == 1
        assert told.stderr == f"error: {path} exists, and is not overwritten; name another file with --output\n"
    assert there.read_text() == "mine"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["known.json", "kubectl", "link", "there"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("t",), 1, "there is no StateStore t in namespace"),
        (("s", "-o", "/nowhere/x.tar.gz"), 1, "the report cannot be written to /nowhere/x.tar.gz: No such file"),
        (("s", "--tail", "-5"), 2, "Invalid value for '--tail'"),
    ],
)
def test_what_cannot_be_reported_on(
    objects: Objects, kubelets: Kubelets, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    """One line, and no file."""
    objects.apply(unprobed_store("s"))
    told = plugin(objects, "report", *arguments, kubelets=kubelets, folder=tmp_path)
    assert (told.returncode, told.stdout) == (code, "")
    assert told.stderr.startswith(f"error: {words}"), told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("*.tar.gz*"))
