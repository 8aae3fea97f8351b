"""The definitions, without an API server: generated from their sources, described, and known to the operator."""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

from tussock.meta.server.settings.model import CompactionSettings, MetaSettings, VersionSettings
from tussock.operator.manifests.compute.conf import spark_conf
from tussock.operator.manifests.transport_security import ROLES
from tussock.operator.resources import backup, client, compactor, compute, meta, parse_compute, parse_store, store

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import make_crds  # noqa: E402

DEFINITIONS = {
    found["spec"]["names"]["kind"]: found
    for path in sorted((ROOT / "crds").glob("*.yaml"))
    for found in [yaml.safe_load(path.read_text(encoding="utf-8"))]
}
SPECS: dict[str, type[msgspec.Struct]] = {
    "StateStore": store.StateStoreSpec,
    "Meta": meta.MetaSpec,
    "Compactor": compactor.CompactorSpec,
    "Compute": compute.ComputeSpec,
    "StateStoreBackup": backup.BackupSpec,
    "StateStoreClient": client.ClientSpec,
}
KINDS = tuple(SPECS)
CASES = Path(__file__).parent

# What the operator keeps for itself: addresses, certificates, the bucket and its credentials; and what the StateStore
# has, for all that look into it.
NOT_OF_USERS = {
    "store", "listen", "advertise", "http_listen", "versions", "compaction", "bucket",
    "tokens", "clients", "accounts", "oidc", "outside",
    "tls.certificate", "tls.key", "tls.client_ca", *(f"tls.roles.{role}" for role in ROLES),
    "credentials.access_key_id", "credentials.secret_access_key",
    "credentials.reader_access_key_id", "credentials.reader_secret_access_key", "credentials.reader_folder",
}  # fmt: skip


def version_of(kind: str) -> dict[str, Any]:
    """The one version of a kind's definition."""
    (version,) = DEFINITIONS[kind]["spec"]["versions"]
    return version


def schema_of(kind: str) -> dict[str, Any]:
    return version_of(kind)["schema"]["openAPIV3Schema"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below one, with its path."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from nodes(field, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield f"{path}[]", schema[key]
            yield from nodes(schema[key], f"{path}[]")


def own_nodes(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """The nodes of a kind that Tussock defines, not Kubernetes."""
    return [(path, node) for path, node in nodes(schema_of(kind)) if path != ".metadata"]


def messages(kind: str) -> set[str]:
    """The messages of a kind's rules."""
    found = [schema_of(kind), *(node for _, node in own_nodes(kind))]
    return {rule["message"] for node in found for rule in node.get("x-kubernetes-validations", ())}


@pytest.mark.parametrize("path", make_crds.written(), ids=lambda path: path.name)
def test_the_generated_files_are_up_to_date(path: Path) -> None:
    """`python scripts/make_crds.py` would change nothing: neither a definition nor a table of the document."""
    assert path.read_text(encoding="utf-8") == make_crds.written()[path]


def test_tables_say_whether_a_border_is_allowed() -> None:
    """Story: seconds were "0 to 1000000000" where the API server refuses 0."""
    text = (ROOT / "docs" / "operator" / "resources.md").read_text(encoding="utf-8")
    assert "| `leader.lease_seconds` | number, more than 0, at most 1000000000 |" in text
    assert "| `vacuum.interval_seconds` | number, 0 to 1000000000 |" in text


def test_every_kind_is_there() -> None:
    """The six kinds, with the short names and the category that documents use."""
    names = {kind: found["spec"]["names"] for kind, found in DEFINITIONS.items()}
    assert {kind: found["shortNames"] for kind, found in names.items()} == {
        "StateStore": ["tss"],
        "Meta": ["tsm"],
        "Compactor": ["tsc"],
        "Compute": ["tsx"],
        "StateStoreBackup": ["tsb"],
        "StateStoreClient": ["tscl"],
    }
    assert {tuple(found["categories"]) for found in names.values()} == {("tussock",)}
    assert {found["spec"]["scope"] for found in DEFINITIONS.values()} == {"Namespaced"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described(kind: str) -> None:
    """A description is a whole sentence: it begins with a capital letter and ends with a stop."""
    bare = [
        path
        for path, node in own_nodes(kind)
        if not re.fullmatch(r"([A-Z]|[a-z]+ \().{5,}\.", node.get("description", ""), re.DOTALL)
    ]
    assert bare == []


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_bounded(kind: str) -> None:
    """Every text, list and map of a spec has a largest size, without which rules over them have no bounded cost."""
    limits = {"string": ("maxLength", "enum"), "array": ("maxItems",), "integer": ("minimum",), "number": ("minimum",)}
    unbounded = []
    for path, node in nodes(schema_of(kind)["properties"]["spec"], "spec"):
        wanted = ("maxProperties",) if "additionalProperties" in node else limits.get(node.get("type", ""), ())
        if wanted and not any(limit in node for limit in wanted):
            unbounded.append(path)
    assert unbounded == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_has_a_case(kind: str) -> None:
    """Every message of a rule is among those that tests see the API server return (`refused.yaml`, `changes.yaml`)."""
    shown = [
        case.get("message", "")
        for file in ("refused", "changes")
        for case in yaml.safe_load((CASES / f"{file}.yaml").read_text(encoding="utf-8"))
    ]
    assert {found for found in messages(kind) if not any(message.endswith(found) for message in shown)} == set()


def structs(annotation: Any) -> list[type[msgspec.Struct]]:
    """The structs in an annotation: `CompactionSpec`, or that of `S3Store | None`."""
    if inspect.isclass(annotation) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [found for part in getattr(annotation, "__args__", ()) for found in structs(part)]


def unknown(struct: type[msgspec.Struct], schema: dict[str, Any], path: str) -> list[str]:
    """Fields that the struct has and the schema lacks, or the other way round."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    properties = schema.get("properties", {})
    found = [f"{path}.{name}" for name in fields.keys() ^ properties.keys()]
    for name in fields.keys() & properties.keys():
        for inner in structs(fields[name].type):
            found += unknown(inner, properties[name].get("items", properties[name]), f"{path}.{name}")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_operator_reads_every_field(kind: str) -> None:
    """The typed specs of the operator have the fields of the schema and no others."""
    differences = unknown(SPECS[kind], schema_of(kind)["properties"]["spec"], "spec")
    # A backup that is restored, and the copy of one, are in a bucket that the operator didn't make.
    elsewhere = re.compile(r"spec\.(restoreFrom\.objectStore|destination)\.(volume|managed)")
    assert [path for path in differences if not elsewhere.fullmatch(path)] == []


def settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every option of the meta service: its name as in the file, and its field."""
    for name, field in model.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            yield from settings(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def numbers(field: Any) -> dict[str, Any]:
    """The bounds of an option, as a schema has them."""
    names = {"ge": "minimum", "le": "maximum", "gt": "minimum"}
    found: dict[str, Any] = {}
    for rule in field.metadata:
        for attribute, name in names.items():
            if getattr(rule, attribute, None) is not None:
                found[name] = getattr(rule, attribute)
                found |= {"exclusiveMinimum": True} if attribute == "gt" else {}
    return found


def test_config_has_the_settings_of_the_meta_service() -> None:
    """`Meta.spec.config` has every option that users may choose, by its name and with its bounds and default."""
    options = {
        name: field for name, field in settings(MetaSettings) if not NOT_OF_USERS & {name, name.partition(".")[0]}
    }
    config = schema_of("Meta")["properties"]["spec"]["properties"]["config"]
    fields = {path.lstrip("."): node for path, node in nodes(config) if "properties" not in node and path[-2:] != "[]"}
    assert fields.keys() == options.keys()
    for name, option in options.items():
        bounds = {key: fields[name][key] for key in ("minimum", "maximum", "exclusiveMinimum") if key in fields[name]}
        assert bounds == numbers(option), name
        if option.default:
            told = f"{option.default:g}" if isinstance(option.default, float) else str(option.default)
            assert told in fields[name]["description"], name


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def test_compaction_has_the_settings_of_the_meta_service() -> None:
    """`StateStore.spec.compaction` has all options of that group, with the defaults that its rules rely on."""
    options = {camel(name): field for name, field in CompactionSettings.model_fields.items()}
    compaction = schema_of("StateStore")["properties"]["spec"]["properties"]["compaction"]
    assert compaction["properties"].keys() == options.keys()
    for name, field in compaction["properties"].items():
        assert (
            f"{options[name].default:g}" in field["description"] or str(options[name].default) in field["description"]
        )
        assert field["minimum"] >= numbers(options[name]).get("minimum", 0), name
    told = " ".join(rule["message"] for rule in compaction["x-kubernetes-validations"])
    for name, default in re.findall(r"(l0\w+) \((\d+) if absent\)", told):
        assert options[name].default == int(default), name
        assert all(
            f": {default}" in rule["rule"] for rule in compaction["x-kubernetes-validations"] if name in rule["rule"]
        )


def test_versions_have_the_settings_of_the_meta_service() -> None:
    """`StateStore.spec` has each option of that group, and no value that the service would not start with."""
    spec = schema_of("StateStore")["properties"]["spec"]["properties"]
    for name, option in VersionSettings.model_fields.items():
        field = spec[camel(name)]
        taken = TypeAdapter(Annotated[option.annotation, option])
        assert field["minimum"] == taken.validate_python(field["minimum"]), name
        assert field["maximum"] == taken.validate_python(field["maximum"]), name


def refused_settings() -> set[str]:
    """The settings of Spark that a rule of the schema lists."""
    rules = schema_of("Compute")["properties"]["spec"]["properties"]["sparkConf"]["x-kubernetes-validations"]
    (rule,) = [found["rule"] for found in rules if "key in [" in found["rule"]]
    return set(re.findall(r"'(spark[^']*)'", rule))


@pytest.mark.parametrize(
    "executor",
    [
        {"replicas": 2, "resources": {"requests": {"cpu": 1}, "limits": {"cpu": 2}}},
        {"minReplicas": 1, "maxReplicas": 3},
    ],
    ids=["number", "range"],
)
def test_settings_of_the_operator_are_refused(executor: dict[str, Any]) -> None:
    """The schema refuses exactly the settings that a job gets whatever its `sparkConf` says."""
    refused = refused_settings()

    def conf(user: dict[str, str]) -> dict[str, str]:
        spec = {"storeRef": {"name": "s"}, "application": {"file": "/a"}, "executor": executor, "sparkConf": user}
        job = parse_compute({"metadata": {"name": "c", "namespace": "n"}, "spec": spec})
        images = {"pullSecrets": ["registry"]}
        body = {"metadata": {"name": "s", "namespace": "n"}, "spec": {"objectStore": {"managed": {}}, "images": images}}
        return spark_conf(job, parse_store(body), "image")

    made = conf(dict.fromkeys({*conf({}), *refused}, "mine"))
    insisted = {name for name, value in made.items() if value != "mine"}
    assert insisted <= refused
    # The driver itself adds these when it starts; the range sets what the number doesn't, and the other way round.
    later = {"spark.driver.host", "spark.kubernetes.driver.pod.name", "spark.executor.instances"}
    either = {name for name in refused if name.startswith("spark.dynamicAllocation.") or name.endswith(".cores")}
    assert refused - insisted <= later | either
