"""The manifests of whole stores: golden files, and rules for all of them."""

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from golden.write_manifests import FOLDER, text_of
from support.network.certificates import Authority
from support.operator.resources import DEFAULTS, compactor_with, meta_with, store_with
from support.operator.store_cases import CASES, manifests_of, pod_templates
from tussock.meta.server.settings.form import load_settings
from tussock.operator.manifests.bucket_access import bucket_secret
from tussock.operator.manifests.compactor import compactor_manifests
from tussock.operator.manifests.labels import digest, selector
from tussock.operator.manifests.meta import meta_manifests
from tussock.operator.manifests.minio import minio_secret
from tussock.operator.manifests.outside.console import LEADER_LABEL
from tussock.operator.manifests.outside.services import REPLICA_LABEL
from tussock.operator.manifests.pod.quantities import bytes_of
from tussock.operator.manifests.store import store_manifests
from tussock.operator.resources import InvalidResource


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_those_of_the_file(case: str) -> None:
    """Byte for byte; after an intended change run `tests/golden/write_manifests.py`."""
    assert text_of(manifests_of(case)) == (FOLDER / f"{case}.yaml").read_text(encoding="utf-8")


def test_no_file_is_left_over() -> None:
    """Each file belongs to a case."""
    assert {path.stem for path in FOLDER.iterdir()} == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_a_spec_changes_nothing(case: str) -> None:
    """The API server may return fields in any order; that is no reason to restart pods."""

    def reversed_fields(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: reversed_fields(value[name]) for name in reversed(value)}
        return [reversed_fields(item) for item in value] if isinstance(value, list) else value

    store, meta, compactor = (msgspec.to_builtins(resource) for resource in CASES[case])
    again = tuple(
        msgspec.convert(reversed_fields(body), type(resource))
        for body, resource in zip((store, meta, compactor), CASES[case], strict=True)
    )
    rendered = meta_manifests(again[1], again[0], DEFAULTS).manifests
    before = meta_manifests(CASES[case][1], CASES[case][0], DEFAULTS).manifests
    assert [digest(json.dumps(one, sort_keys=True)) for one in rendered] == [
        digest(json.dumps(one, sort_keys=True)) for one in before
    ]


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is mounted in a pod as its certificate: the service looks at the files that it is told of."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    pair = authority.sign("meta")
    pair.certificate.rename(folder / "tls.crt")
    pair.key.rename(folder / "tls.key")
    authority.certificate.rename(folder / "ca.crt")
    return folder


@pytest.mark.parametrize("case", CASES)
def test_meta_takes_its_configuration(case: str, tmp_path: Path, mounted: Path) -> None:
    """The service itself reads the file, and finds the store's settings in it."""
    store, _, _ = CASES[case]
    (found,) = [manifest for manifest in manifests_of(case) if manifest["kind"] == "ConfigMap"]
    for file, text in found["data"].items():
        there = text.replace("/etc/tussock/tls", str(mounted)).replace("/etc/tussock/meta", str(tmp_path))
        (tmp_path / file).write_text(there)
    settings = load_settings({}, {}, str(tmp_path / "meta.toml"))
    assert settings.versions.retention_seconds == store.spec.retention_seconds
    assert (settings.listen, settings.http_listen) == ("0.0.0.0:7370", "0.0.0.0:7371")
    assert bool(settings.tls.certificate) == (store.spec.tls.mode != "none")
    if store.spec.compaction.tasks_per_table:
        assert settings.compaction.tasks_per_table == store.spec.compaction.tasks_per_table


def test_selectors_never_change() -> None:
    """A Deployment's selector cannot be changed, so these must stay."""
    assert selector(meta_with("m"), "meta") == {
        "app.kubernetes.io/name": "tussock",
        "app.kubernetes.io/component": "meta",
        "tussock.dev/owner-kind": "Meta",
        "tussock.dev/owner": "m",
    }


@pytest.mark.parametrize("case", CASES)
def test_selectors_find_their_own_pods_only(case: str) -> None:
    """Each workload's, service's and budget's selector fits the pods of one template and of no other."""
    templates = pod_templates(case)
    for manifest in manifests_of(case):
        spec = manifest.get("spec", {})
        if manifest["kind"] == "NetworkPolicy":
            wanted = spec["podSelector"]["matchLabels"]
        else:
            wanted = spec.get("selector") or {}
            wanted = wanted.get("matchLabels", wanted)
        # No template has a number, or leads: the operator labels pods that live.
        wanted = {name: value for name, value in wanted.items() if name not in (REPLICA_LABEL, LEADER_LABEL)}
        if wanted:
            fitting = [name for name, one in templates.items() if wanted.items() <= one["metadata"]["labels"].items()]
            assert len(fitting) == 1, (manifest["kind"], manifest["metadata"]["name"])


@pytest.mark.parametrize("case", CASES)
def test_children_have_an_owner(case: str) -> None:
    """All have the labels of the watches, and an owner, except data that outlives it."""
    store, _, _ = CASES[case]
    for manifest in manifests_of(case):
        meta = manifest["metadata"]
        assert meta["labels"]["tussock.dev/store"] == "shop"
        assert meta["labels"]["app.kubernetes.io/managed-by"] == "tussock-operator"
        if manifest["kind"] == "PersistentVolumeClaim" and store.spec.deletion_policy == "Retain":
            assert "ownerReferences" not in meta
        else:
            (owner,) = meta["ownerReferences"]
            assert owner["controller"] is True
            assert (owner["kind"], owner["name"]) == (
                meta["labels"]["tussock.dev/owner-kind"],
                meta["labels"]["tussock.dev/owner"],
            )


def test_an_upgrade_of_the_operator_restarts_no_pod() -> None:
    """An upgrade changes the operator's image and defaults; templates with their own image stay."""
    store, meta, compactor = CASES["production"]
    newer = DEFAULTS._replace(node_image="registry.example/tussock-node:9.9.9", namespace="elsewhere")
    for made in (
        lambda defaults: meta_manifests(meta, store, defaults),
        lambda defaults: compactor_manifests(compactor, store, ["m:7370"], defaults),
    ):
        assert made(newer) == made(DEFAULTS)


def test_the_version_is_no_label_of_a_pod() -> None:
    """The workload has it; in the template each upgrade would change it and restart pods."""
    (workload,) = [
        one for one in manifests_of("minimal") if one["metadata"]["name"] == "shop-minio" and "template" in one["spec"]
    ]
    assert workload["metadata"]["labels"]["app.kubernetes.io/version"] == "2026.1"
    assert "app.kubernetes.io/version" not in workload["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("case", CASES)
def test_secrets_are_files(case: str) -> None:
    """No variable takes its value from a secret, so no dump of an environment has one."""
    for name, template in pod_templates(case).items():
        for container in template["spec"]["containers"]:
            for variable in container.get("env", ()):
                assert "secretKeyRef" not in json.dumps(variable), name
            assert "envFrom" not in container


def test_the_value_of_a_secret_is_only_in_the_secret() -> None:
    """As text or encoded, in all manifests of a store."""
    store, _, _ = CASES["minimal"]
    secret = minio_secret(store, "the-user", "s3cret-passw0rd")
    everything = yaml.safe_dump_all([*manifests_of("minimal"), secret])
    encoded = base64.b64encode(b"s3cret-passw0rd").decode()
    assert everything.count("s3cret-passw0rd") == 0
    assert everything.count(encoded) == 1
    name, keys = bucket_secret(store) or ("", {})
    assert (name, set(keys.values())) == (secret["metadata"]["name"], set(secret["data"]))


def test_a_secret_in_the_configuration_is_refused() -> None:
    """It would be in a ConfigMap; the message does not repeat it."""
    meta = meta_with(config={"credentials": {"secret_access_key": "s3cret"}})
    with pytest.raises(InvalidResource, match=r"config\.credentials\.secret_access_key does not belong") as raised:
        meta_manifests(meta, store_with({"managed": {}}), DEFAULTS)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "object_store",
    [{"volume": {"size": "1Gi"}}, {"gcs": {"bucket": "b"}}, {"s3": {"bucket": "b", "serviceAccount": "a"}}],
)
def test_missing_credentials_cannot_be_handed_out(object_store: dict[str, Any]) -> None:
    """The service would not start with that mode; `none` works with any bucket."""
    store = store_with(object_store)
    with pytest.raises(InvalidResource, match="there is no key pair to hand out"):
        meta_manifests(meta_with(config={"credentials": {"mode": "static"}}), store, DEFAULTS)
    meta_manifests(meta_with(config={"credentials": {"mode": "none"}}), store, DEFAULTS)


def test_an_image_that_is_set_nowhere_is_reported() -> None:
    """The message lists the places where it may be set, which are fields that there are.

    Story: for a managed object store it named a field of Meta.
    """
    places = r"set spec\.image, or spec\.images\.node of its StateStore, or the operator's --node-image"
    with pytest.raises(InvalidResource, match=f"Meta shop has no image: {places}"):
        meta_manifests(meta_with(), store_with({"managed": {}}), DEFAULTS._replace(node_image=""))
    places = r"set spec\.objectStore\.managed\.image, or spec\.images\.minio, or the operator's --minio-image"
    with pytest.raises(InvalidResource, match=f"StateStore shop has no image of MinIO: {places}"):
        store_manifests(store_with({"managed": {}}), ["shop"], DEFAULTS._replace(minio_image=""), "7")


def test_only_meta_has_the_secret_of_an_s3_bucket() -> None:
    """It hands credentials out; with other providers all pods need the secret."""

    def holders(case: str) -> set[str]:
        return {name for name, one in pod_templates(case).items() if "TUSSOCK_BUCKET_CREDENTIALS" in json.dumps(one)}

    assert holders("production") == holders("minimal") == {"Deployment/shop-meta"}
    assert holders("gcs") == holders("azure") == {"Deployment/shop-meta", "Deployment/shop-compactor"}
    assert holders("identity") == holders("volume") == set()


def test_revoked_certificates_reach_the_service_without_a_restart() -> None:
    """In a file that it reads again, which changes nothing else; without certificates it makes no sense."""
    meta, store = meta_with(config={"tls": {"revoked": ["URI:tussock://data/shop/writer/totals"]}}), {"managed": {}}
    found = meta_manifests(meta, store_with(store), DEFAULTS).manifests
    before = meta_manifests(meta_with(), store_with(store), DEFAULTS).manifests
    (files,) = [one["data"] for one in found if one["kind"] == "ConfigMap"]
    assert files["clients.toml"] == 'revoked = ["URI:tussock://data/shop/writer/totals"]\n'
    assert 'file = "/etc/tussock/meta/clients.toml"' in files["meta.toml"]
    assert 'client_ca = "/etc/tussock/tls/ca.crt"' in files["meta.toml"]
    assert [one for one in found if one["kind"] != "ConfigMap"] == [one for one in before if one["kind"] != "ConfigMap"]
    (none,) = [one["data"] for one in before if one["kind"] == "ConfigMap"]
    assert (none["clients.toml"], none["meta.toml"]) == ("revoked = []\n", files["meta.toml"])
    with pytest.raises(InvalidResource, match=r"config\.tls\.revoked is about certificates"):
        meta_manifests(meta, store_with({"managed": {}}, tls={"mode": "none"}), DEFAULTS)


def test_only_meta_has_the_pair_of_readers() -> None:
    """It hands the pair out; the ConfigMap has its path, and nothing of its content."""
    holders = {name for name, one in pod_templates("production").items() if "bucket-readers" in json.dumps(one)}
    assert holders == {"Deployment/shop-meta"}
    (found,) = [one for one in manifests_of("production") if one["kind"] == "ConfigMap"]
    assert 'reader_folder = "/etc/tussock/readers"' in found["data"]["meta.toml"]
    assert 'mode = "static"' in found["data"]["meta.toml"]


@pytest.mark.parametrize("mode", ["none", "assume-role"])
def test_a_pair_of_readers_that_is_never_handed_out_is_refused(mode: str) -> None:
    """In other modes it would be kept and never used."""
    keys = {"credentialsSecret": {"name": "keys"}, "readerCredentialsSecret": {"name": "readers"}}
    store = store_with({"s3": {"bucket": "b", "region": "eu-central-1", **keys}})
    with pytest.raises(InvalidResource, match=f"mode is '{mode}', but only the mode static hands out the pair"):
        meta_manifests(meta_with(config={"credentials": {"mode": mode}}), store, DEFAULTS)
    meta_manifests(meta_with(config={"credentials": {"mode": "static"}}), store, DEFAULTS)


def test_an_identity_is_the_account_of_all_pods() -> None:
    """No other account is made."""
    accounts = {one["spec"]["serviceAccountName"] for one in pod_templates("identity").values()}
    assert accounts == {"bucket-user"}
    assert "ServiceAccount" not in {manifest["kind"] for manifest in manifests_of("identity")}


def test_compactors_stay_within_their_memory() -> None:
    """The slots are given less than the container's limit, whichever of the two the user sets."""
    store = store_with({"managed": {}})
    for spec in (
        {},
        {"slots": 6},
        {"memoryBytes": 1 << 30},
        {"resources": {"limits": {"memory": "2G"}}},
        {"resources": {"limits": {"memory": "100Mi"}}},
    ):
        made = compactor_manifests(compactor_with(**spec), store, ["m:7370"], DEFAULTS).manifests
        template = next(one for one in made if one["kind"] == "Deployment")["spec"]
        (container,) = template["template"]["spec"]["containers"]
        told = next(one["value"] for one in container["env"] if one["name"] == "TUSSOCK_COMPACTOR_MEMORY_MIB")
        assert 0 < int(told) << 20 < bytes_of(container["resources"]["limits"]["memory"])


@pytest.mark.parametrize(
    ("text", "value"),
    [("512Mi", 512 << 20), ("1.5G", 1_500_000_000), ("1e9", 10**9), ("128974848", 128974848), ("1500m", 1), (7, 7)],
)
def test_quantities_are_read(text: str | int, value: int) -> None:
    assert bytes_of(text) == value


@pytest.mark.parametrize("text", ["", "1 GiB", "Gi", "-1", "1KiB"])
def test_a_wrong_quantity_is_reported(text: str) -> None:
    with pytest.raises(InvalidResource, match="not a quantity of memory"):
        bytes_of(text)
