"""Bodies of the API as typed specs: the types have the fields and the defaults of the definitions in `crds/`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kopf
import msgspec
import pytest
import yaml

from tussock.operator.resources import (
    InvalidResource,
    Resource,
    parse_backup,
    parse_client,
    parse_compactor,
    parse_compute,
    parse_meta,
    parse_store,
)
from tussock.operator.resources.backup import BackupSpec
from tussock.operator.resources.client import ClientSpec
from tussock.operator.resources.compactor import CompactorSpec
from tussock.operator.resources.compute import ComputeSpec
from tussock.operator.resources.meta import MetaSpec
from tussock.operator.resources.object_store import ObjectStoreSpec, bucket_url
from tussock.operator.resources.store import StateStoreSpec

ROOT = Path(__file__).resolve().parents[3]
KINDS: dict[str, tuple[type[msgspec.Struct], Callable[[Any], Resource]]] = {
    "statestores": (StateStoreSpec, parse_store),
    "metas": (MetaSpec, parse_meta),
    "compactors": (CompactorSpec, parse_compactor),
    "computes": (ComputeSpec, parse_compute),
    "statestorebackups": (BackupSpec, parse_backup),
    "statestoreclients": (ClientSpec, parse_client),
}
RAW = {"podTemplate", "config", "env", "resources", "emptyDir"}
"""Parts that are passed on unchanged."""

ONLY_IN_TYPES = {
    # A store that nobody shares cannot be the source of another one's restore; the type is the same everywhere.
    "statestores.restoreFrom.objectStore.managed: only in the type",
    "statestores.restoreFrom.objectStore.volume: only in the type",
    "statestorebackups.destination.managed: only in the type",
    "statestorebackups.destination.volume: only in the type",
}

Schema = dict[str, Any]


def schema_of(plural: str) -> Schema:
    definition = yaml.safe_load((ROOT / f"crds/{plural}.yaml").read_text(encoding="utf-8"))
    found: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The struct types in a field's type."""
    info = msgspec.inspect.type_info(kind)
    for one in info.types if isinstance(info, msgspec.inspect.UnionType) else (info,):
        if isinstance(one, msgspec.inspect.StructType):
            yield one.cls


def differences(schema: Schema, struct: type[msgspec.Struct], path: str) -> Iterator[str]:
    """Fields that only one of the two has, and defaults that differ."""
    properties = schema["properties"]
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for name in sorted(properties.keys() ^ fields.keys()):
        yield f"{path}.{name}: only in {'the schema' if name in properties else 'the type'}"
    for name in sorted(properties.keys() & fields.keys()):
        field, here = fields[name], properties[name]
        if name in RAW:
            continue
        nested = next(structs(field.type), None)
        if nested is not None:
            yield from differences(here, nested, f"{path}.{name}")
        if "default" in here:
            default = None if field.default is msgspec.NODEFAULT else field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            if msgspec.convert(here["default"], field.type) != default:
                yield f"{path}.{name}: {here['default']!r} in the schema, {default!r} in the type"
        if (name in schema.get("required", ())) != field.required:
            yield f"{path}.{name}: is required in one of both only"


@pytest.mark.parametrize("plural", KINDS)
def test_types_match_the_schema(plural: str) -> None:
    """Every field is in both, with the same default, and required in both or in neither."""
    found = set(differences(schema_of(plural), KINDS[plural][0], plural))
    assert found == {known for known in ONLY_IN_TYPES if known.startswith(plural)}


def accepted_cases() -> list[Any]:
    entries = yaml.safe_load((ROOT / "tests/crds/accepted.yaml").read_text(encoding="utf-8"))
    return [pytest.param(entry, id=entry["name"]) for entry in entries]


@pytest.mark.parametrize("entry", accepted_cases())
def test_a_users_body_parses_like_the_servers(entry: dict[str, Any]) -> None:
    """With and without defaults, as a plain dict and as the body that kopf passes."""
    parse = KINDS[f"{entry['kind'].lower()}s"][1]
    metadata = {"name": entry["name"], "namespace": "data", "uid": "u", "generation": 3}
    written, stored = ({"metadata": metadata, "spec": entry[name]} for name in ("spec", "stored"))
    found = parse(written)
    assert (found.kind, found.name, found.namespace) == (entry["kind"], entry["name"], "data")
    assert found.metadata.generation == 3
    assert parse(stored) == parse(kopf.Body(written)) == found


def test_a_wrong_body_is_reported_with_its_field() -> None:
    """It was stored under another schema; the message has the object, the path, and the problem."""
    body = {"metadata": {"name": "m", "namespace": "data"}, "spec": {"storeRef": {"name": "s"}, "replicas": "three"}}
    with pytest.raises(InvalidResource, match=r"Meta data/m does not fit .* `\$\.spec\.replicas`"):
        parse_meta(body)


@pytest.mark.parametrize(
    ("object_store", "url"),
    [
        ({"s3": {"bucket": "b"}}, "s3://b"),
        ({"s3": {"bucket": "b", "prefix": "a/c"}}, "s3://b/a/c"),
        ({"gcs": {"bucket": "b", "prefix": "p"}}, "gs://b/p"),
        ({"azure": {"container": "c", "account": "a", "prefix": "p"}}, "az://c/p"),
        ({"volume": {"size": "1Gi"}}, "file:///var/lib/tussock/store"),
        ({"managed": {}}, "s3://tussock"),
    ],
)
def test_bucket_is_named_by_its_url(object_store: dict[str, Any], url: str) -> None:
    assert bucket_url(msgspec.convert(object_store, ObjectStoreSpec)) == url


@pytest.mark.parametrize("object_store", [{}, {"managed": {}, "s3": {"bucket": "b"}}])
def test_a_store_has_exactly_one_object_store(object_store: dict[str, Any]) -> None:
    """None or two are refused, also if the server accepted them."""
    with pytest.raises(InvalidResource, match="give exactly one of s3, gcs, azure, volume, managed"):
        bucket_url(msgspec.convert(object_store, ObjectStoreSpec))
