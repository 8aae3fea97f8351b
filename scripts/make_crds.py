"""Write `crds/*.yaml` from `scripts/crds`, and the tables of `docs/operator/resources.md` from the same.

A source is a schema with `$use: name` where a shared part stands (`fragments.yaml`, `meta_config.yaml`), and without
what is the same in every definition: that is added here. A test holds that what is written is up to date.

    python scripts/make_crds.py
"""

from pathlib import Path
from typing import Any

import yaml
from crd_tables import FROM, fill_in

ROOT = Path(__file__).resolve().parent.parent
CRDS = ROOT / "crds"
SOURCE = ROOT / "scripts" / "crds"
TABLES = ROOT / "docs" / "operator" / "resources.md"
KINDS = ("statestore", "meta", "compactor", "compute", "statestorebackup", "statestoreclient")
PARTS = ("fragments", "meta_config")
GROUP, VERSION = "tussock.dev", "v1alpha1"
HEADER = "# Written by scripts/make_crds.py from scripts/crds: change it there.\n"

# Names of children add up to 23 characters, and a Service allows 63, beginning with a letter.
NAME_RULE = {
    "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",
    # A rule of the whole object can't point at its name, so the message does.
    "message": "metadata.name: pods and services are named after this object, so give at most 40 lower-case letters, "
    "digits and '-', beginning with a letter",
}


def load(name: str) -> dict[str, Any]:
    """A file of `scripts/crds`."""
    found: dict[str, Any] = yaml.safe_load((SOURCE / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def merge(under: Any, over: Any) -> Any:
    """`over` laid over `under`: mappings key by key, rules one after the other, all else replaced."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    merged = dict(under)
    for key, value in over.items():
        if key == "x-kubernetes-validations" and key in under:
            merged[key] = [*under[key], *value]
        else:
            merged[key] = merge(under[key], value) if key in under else value
    return merged


def expand(schema: Any, parts: dict[str, Any]) -> Any:
    """The schema with every `$use` replaced by the part that it names, which `FROM` keeps in mind."""
    if isinstance(schema, list):
        return [expand(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$use" in schema:
        name = schema["$use"]
        own = {key: value for key, value in schema.items() if key != "$use"}
        return expand(merge({FROM: name} | parts[name], own), parts)
    return {key: expand(value, parts) for key, value in schema.items()}


def plain(schema: Any) -> Any:
    """The expanded schema without what only the tables need."""
    if isinstance(schema, list):
        return [plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: plain(value) for key, value in schema.items() if key != FROM}


def column(source: dict[str, Any]) -> dict[str, Any]:
    """A column of `kubectl get`."""
    found = {key: source[key] for key in ("name", "type", "description")} | {"jsonPath": source["path"]}
    return found | ({"priority": source["priority"]} if "priority" in source else {})


def definition(source: dict[str, Any]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind, whose source is expanded."""
    spec = {"type": "object", **plain(source["spec"])}
    status = {"type": "object", **plain(source["status"])}
    schema = {
        "type": "object",
        "description": source["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"The API and its version, {GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"The kind of the object, {source['kind']}."},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": [NAME_RULE],
    }
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}} | ({"scale": source["scale"]} if "scale" in source else {}),
        "additionalPrinterColumns": [column(found) for found in source["columns"]],
        "schema": {"openAPIV3Schema": schema},
    }
    if "storeRef" in spec["properties"]:
        version["selectableFields"] = [{"jsonPath": ".spec.storeRef.name"}]
    names = {
        "kind": source["kind"],
        "listKind": f"{source['kind']}List",
        "plural": source["plural"],
        "singular": source["kind"].lower(),
        "shortNames": source["shortNames"],
        "categories": ["tussock"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{source['plural']}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


class _Plain(yaml.SafeDumper):
    """Repeats what several fields share, instead of naming it once: an anchor would hide it from readers."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def written() -> dict[Path, str]:
    """What each written file holds."""
    parts = {name: part for file in PARTS for name, part in load(file).items()}
    kinds = {kind: expand(load(kind), parts) for kind in KINDS}
    found = {}
    for source in kinds.values():
        text = yaml.dump(definition(source), Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)
        found[CRDS / f"{source['plural']}.yaml"] = HEADER + text
    tables = {name: expand(part, parts) for name, part in parts.items()}
    for kind, source in kinds.items():
        tables |= {f"{kind}.{section}": source[section] for section in ("spec", "status", "columns")}
    found[TABLES] = fill_in(TABLES.read_text(encoding="utf-8"), tables)
    return found


def main() -> None:
    """Write all files."""
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
