"""The manifests of jobs: golden files, and rules for all of them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from golden.write_computes import FOLDER
from golden.write_manifests import text_of
from support.operator.compute_cases import ADDRESSES, CASES, compute_with, job_of, manifests_of
from support.operator.resources import DEFAULTS, store_with
from tussock.operator.manifests.compute.conf import executor_overhead_bytes, properties, spark_conf
from tussock.operator.manifests.compute.job import Job, compute_manifests
from tussock.operator.manifests.network import network_policies
from tussock.operator.resources import InvalidResource
from tussock.operator.resources.compute import parse_compute


def one(case: str, kind: str) -> dict[str, Any]:
    (found,) = [manifest for manifest in manifests_of(case) if manifest["kind"] == kind]
    return found


def files(case: str) -> dict[str, str]:
    return dict(one(case, "ConfigMap")["data"])


def conf(case: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in files(case)["spark-defaults.conf"].splitlines())


def pods(case: str) -> dict[str, dict[str, Any]]:
    """The driver's pod, and the template of executors as Spark reads it."""
    return {"driver": one(case, "Pod"), "executor": yaml.safe_load(files(case)["executor-pod.json"])}


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_those_of_the_file(case: str) -> None:
    """Byte for byte; after an intended change run `tests/golden/write_computes.py`."""
    assert text_of(manifests_of(case)) == (FOLDER / f"{case}.yaml").read_text(encoding="utf-8")


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_driver_may_handle_pods_and_nothing_else(case: str) -> None:
    """Spark's settings make it try nothing else; only the driver's pod has a token."""
    rule, own = one(case, "Role")["rules"]
    assert (own["resources"], own["resourceNames"], own["verbs"]) == (["computes"], ["totals"], ["drive"])
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    settings = conf(case)
    assert settings["spark.kubernetes.executor.disableConfigMap"] == "true"
    assert settings["spark.kubernetes.driver.service.deleteOnTermination"] == "false"
    assert settings["spark.kubernetes.driver.ownPersistentVolumeClaim"] == "false"
    tokens = {role: pod["spec"]["automountServiceAccountToken"] for role, pod in pods(case).items()}
    assert tokens == {"driver": True, "executor": False}


@pytest.mark.parametrize("case", CASES)
def test_pods_are_restricted(case: str) -> None:
    for pod in pods(case).values():
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert "hostNetwork" not in pod["spec"]
        assert pod["spec"]["restartPolicy"] == "Never"
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("case", CASES)
def test_selectors_find_driver_and_executors_apart(case: str) -> None:
    """The Service selects the driver; the policy selects both."""
    driver, executor = (pod["metadata"]["labels"] for pod in pods(case).values())
    service = one(case, "Service")["spec"]["selector"]
    assert service.items() <= driver.items()
    assert not service.items() <= executor.items()
    for policy in (manifest for manifest in manifests_of(case) if manifest["kind"] == "NetworkPolicy"):
        own = policy["spec"]["podSelector"]["matchLabels"]
        assert own.items() <= driver.items()
        assert own.items() <= executor.items()


def test_required_settings_win_over_settings_of_users() -> None:
    """In Spark's settings, in the environment, and in pod templates, where the change is reported."""
    settings = conf("production")
    assert settings["spark.master"].startswith("k8s")
    assert settings["spark.kubernetes.executor.disableConfigMap"] == "true"
    assert settings["spark.sql.session.timeZone"] == "Europe/Berlin", "what is only suggested gives way"
    for pod in pods("production").values():
        (container,) = pod["spec"]["containers"]
        env = [entry["value"] for entry in container["env"] if entry["name"] == "TUSSOCK_STORE"]
        assert env == ["tussock://shop-meta.data.svc:7370"]
        assert {"name": "TZ", "value": "UTC"} in container["env"]
        assert pod["spec"]["nodeSelector"] == {"disk": "fast"}
    driver, executor = pods("production").values()
    assert "livenessProbe" in driver["spec"]["containers"][0]
    assert (driver["spec"].get("priorityClassName"), executor["spec"].get("priorityClassName")) == ("important", None)
    assert [pod["metadata"]["labels"]["tussock.dev/role"] for pod in (driver, executor)] == ["driver", "executor"]
    kept = job_of("production").kept
    assert "driver: spec.hostNetwork" in kept
    assert "executor: spec.hostNetwork" in kept
    assert any("livenessProbe" in path for path in kept)


@pytest.mark.parametrize("case", CASES)
def test_no_secret_is_in_settings_or_arguments(case: str) -> None:
    """Neither a bucket's secret nor a user's: references of the user stay references."""
    text = "\n".join(files(case).values()) + json.dumps(one(case, "Pod")["spec"]["containers"][0]["args"])
    assert "secret-access-key" not in text
    assert "AWS_" not in text
    references = [
        entry["valueFrom"]
        for entry in one(case, "Pod")["spec"]["containers"][0]["env"]
        if "secretKeyRef" in entry.get("valueFrom", {})
    ]
    assert references == ([{"secretKeyRef": {"name": "kafka", "key": "password"}}] if case == "production" else [])


def test_the_number_of_executors_is_no_part_of_a_driver() -> None:
    """All other inputs of a driver are: arguments, settings, program."""
    store = store_with({"managed": {}})

    def hash_of(application: str = "", **spec: Any) -> str:
        return compute_manifests(compute_with(**spec), store, ADDRESSES, DEFAULTS, application).template_hash

    base = hash_of(executor={"replicas": 1})
    assert hash_of(executor={"replicas": 7}) == base
    assert hash_of(executor={"replicas": 1}, suspend=True) == base
    assert hash_of(executor={"replicas": 1}, restartPolicy={"type": "Never"}) == base
    others = {
        hash_of(executor={"replicas": 1, "cores": 2}),
        hash_of(executor={"minReplicas": 1, "maxReplicas": 2}),
        hash_of(executor={"replicas": 1}, arguments=["a"]),
        hash_of(executor={"replicas": 1}, image="registry.example/other:1"),
        hash_of(executor={"replicas": 1}, sparkConf={"spark.a": "b"}),
        hash_of(executor={"replicas": 1}, application="another program"),
        hash_of(executor={"replicas": 1}, driver={"memory": "2Gi"}),
    }
    assert base not in others
    assert len(others) == 7


def test_an_executors_memory_limit_is_the_users() -> None:
    """Spark computes the pod's memory as heap plus overhead, so the overhead is the rest of the limit."""
    executor = CASES["production"][1].spec.executor
    assert executor_overhead_bytes(executor) == 4 << 30
    settings = conf("production")
    assert (settings["spark.executor.memory"], settings["spark.executor.memoryOverhead"]) == ("8192m", "4096m")
    assert settings["spark.kubernetes.executor.request.cores"] == "3500m"
    assert settings["spark.kubernetes.executor.limit.cores"] == "4"


def test_an_identity_is_the_account_of_driver_and_executors() -> None:
    """No other account is made, and it gets the driver's rights."""
    assert "ServiceAccount" not in {manifest["kind"] for manifest in manifests_of("identity")}
    assert one("identity", "RoleBinding")["subjects"][0]["name"] == "bucket-user"
    assert [pod["spec"]["serviceAccountName"] for pod in pods("identity").values()] == ["bucket-user"] * 2


def test_a_store_on_a_volume_is_mounted_by_both() -> None:
    for pod in pods("volume").values():
        assert "/var/lib/tussock/store" in [
            mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]
        ]


def test_settings_survive_the_file() -> None:
    """Java reads them back: blanks, backslashes, line ends, and characters that would end a key."""
    text = properties({"spark.a": "b c", "spark.b": " x\\y\nz", "spark.c=d:e": "1"})
    assert text == "spark.a=b c\nspark.b=\\ x\\\\y\\nz\nspark.c\\=d\\:e=1\n"


def test_every_required_setting_is_refused_by_the_schema_or_overruled() -> None:
    """The result is the same, whatever a user sets."""
    store = store_with({"managed": {}})
    plain = spark_conf(compute_with(), store, "image")
    ours = [
        key for key in plain if key.startswith(("spark.master", "spark.kubernetes", "spark.driver", "spark.executor"))
    ]
    hostile = dict.fromkeys(ours, "hostile") | {"spark.executor.decommission.forceKillTimeout": "1s"}
    found = spark_conf(compute_with(sparkConf=hostile), store, "image")
    changed = {key for key in found if found[key] != plain.get(key)}
    assert changed == {"spark.executor.decommission.forceKillTimeout"}


def test_a_job_without_an_image_says_where_to_name_one() -> None:
    with pytest.raises(InvalidResource, match=r"images\.spark"):
        compute_manifests(compute_with(), store_with({"managed": {}}), ADDRESSES, DEFAULTS._replace(spark_image=""))


def test_a_body_of_another_schema_is_refused_with_its_path() -> None:
    body = {"metadata": {"name": "x", "namespace": "data"}, "spec": {"storeRef": {"name": "s"}, "application": 3}}
    with pytest.raises(InvalidResource, match=r"Compute data/x .*application"):
        parse_compute(body)


@pytest.mark.parametrize("case", CASES)
def test_sparks_traffic_is_authenticated_between_driver_and_executors(case: str) -> None:
    """A secret in a file is in both pods; settings and variables only hold its path."""
    settings = conf(case)
    assert settings["spark.authenticate"] == settings["spark.network.crypto.enabled"] == "true"
    assert settings["spark.ui.killEnabled"] == settings["spark.network.crypto.saslFallback"] == "false"
    path = Path(settings["spark.authenticate.secret.file"])
    for pod in pods(case).values():
        [mount] = [one for one in pod["spec"]["containers"][0]["volumeMounts"] if one["mountPath"] == str(path.parent)]
        [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == mount["name"]]
        assert volume["secret"]["secretName"] == "totals-spark"
    env = {entry["name"]: entry.get("value") for entry in pods(case)["driver"]["spec"]["containers"][0]["env"]}
    assert env["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_job_cannot_leave_its_traffic_open() -> None:
    """A job may not set a secret, which would be in a ConfigMap, and which Spark would prefer to that in the file."""
    asked = {
        "spark.authenticate": "false",
        "spark.authenticate.secret": "hunter2",
        "spark.authenticate.secret.driver.file": "/tmp/mine",
        "spark.network.crypto.enabled": "false",
        "spark.network.crypto.cipher": "AES/CTR/NoPadding",
        "spark.ui.killEnabled": "true",
    }
    compute, store = compute_with(sparkConf=asked), store_with({"managed": {}})
    assert spark_conf(compute, store, "image") == spark_conf(compute_with(), store, "image")


@pytest.mark.parametrize(
    ("namespace", "selector"),
    [
        ("", None),
        ("monitoring", {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}),
        ("*", {}),
    ],
)
def test_only_prometheus_reaches_only_the_metrics(namespace: str, selector: dict | None) -> None:
    """To those of jobs and of meta nodes; Spark's web page is closed to all."""
    store, defaults = store_with({"managed": {}}), DEFAULTS._replace(prometheus_namespace=namespace)
    found = list(compute_manifests(compute_with(), store, ADDRESSES, defaults).manifests)
    found += network_policies(store, defaults)
    rules = [rule for one in found if one["kind"] == "NetworkPolicy" for rule in one["spec"]["ingress"]]
    of_prometheus = [
        (peer["namespaceSelector"], [port["port"] for port in rule["ports"]])
        for rule in rules
        for peer in rule["from"]
        if peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "prometheus"}
    ]
    assert of_prometheus == ([] if selector is None else [(selector, [7372]), (selector, [7371])])
    assert 4040 not in [port["port"] for rule in rules for port in rule["ports"]]


def test_an_event_log_is_asked_of_spark_and_of_the_driver() -> None:
    """Spark writes small files, which the driver takes to the bucket; executors have no part in it."""
    store, job = store_with({"managed": {}}), compute_with(eventLog={"count": 3, "size": "1Gi"})
    settings = spark_conf(job, store, "image")
    assert settings["spark.eventLog.enabled"] == settings["spark.eventLog.rolling.enabled"] == "true"
    assert "spark.eventLog.dir" not in settings, "it is a folder of each pod"
    made = compute_manifests(job, store, ADDRESSES, DEFAULTS)
    [container] = made.template["spec"]["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert (env["TUSSOCK_EVENT_LOG"], env["TUSSOCK_EVENT_LOG_COUNT"]) == (job.name, "3")
    assert env["TUSSOCK_EVENT_LOG_BYTES"] == str(1 << 30)
    [files] = [manifest["data"] for manifest in made.manifests if manifest["kind"] == "ConfigMap"]
    assert "TUSSOCK_EVENT_LOG" not in files["executor-pod.json"]


def test_an_event_log_elsewhere_is_the_users() -> None:
    asked = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "s3a://logs/jobs"}
    settings = spark_conf(compute_with(sparkConf=asked), store_with({"managed": {}}), "image")
    assert {key: settings[key] for key in settings if key.startswith("spark.eventLog")} == asked


def test_a_program_in_the_bucket_is_the_drivers_to_fetch() -> None:
    """Another digest is another driver, and no executor knows of it."""
    store = store_with({"managed": {}})

    def made(digit: str) -> Job:
        source = {"name": "totals.py", "sha256": digit * 64}
        return compute_manifests(compute_with(application={"object": source}), store, ADDRESSES, DEFAULTS)

    [container] = made("a").template["spec"]["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    name = compute_with().name
    assert env["TUSSOCK_PROGRAM"] == f"applications/{name}/program/totals.py"
    assert env["TUSSOCK_PROGRAM_SHA256"] == "a" * 64
    assert container["args"][3] == "totals.py"
    assert made("a").template_hash != made("b").template_hash
    [files] = [manifest["data"] for manifest in made("a").manifests if manifest["kind"] == "ConfigMap"]
    assert "TUSSOCK_PROGRAM" not in files["executor-pod.json"]
