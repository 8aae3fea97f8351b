"""The tables of `docs/operator/resources.md`, written from the schemas.

A row is a field. A part that several kinds share has a separate table, to which their rows link, so nothing is said
twice.
"""

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["FROM", "fill_in"]

FROM = "$from"
"""Key of an expanded schema that names the shared part which it was."""

HEADINGS = {
    "s3": "S3",
    "gcs": "Google Cloud Storage",
    "azure": "Azure Blob Storage",
    "metaSection": "Meta",
    "metaConfig": "Settings of the meta service",
    "compactorSection": "Compactor",
    "resources": "Resources",
    "podTemplate": "Pod template",
    "conditions": "Conditions",
}
"""Parts that have their own table, and the heading above it."""

_NOUNS = {
    "name": "name",
    "storageClassName": "name",
    "workloadIdentity": "name",
    "imageName": "image",
    "secretKey": "key",
    "quantity": "size, such as `10Gi`",
    "memory": "memory, such as `4Gi`",
    "resourceQuantity": "quantity",
    "cron": "cron line",
    "prefix": "text without `/` at its ends",
}
"""Parts that one word tells, so that their own rules need not be listed."""
_TOLD_ELSEWHERE = {*HEADINGS, *_NOUNS}
_MARK = re.compile(r"<!-- table (?P<name>\S+) -->\n.*?<!-- end -->", re.DOTALL)


def fill_in(text: str, tables: dict[str, Any]) -> str:
    """`text` with what stands between `<!-- table NAME -->` and `<!-- end -->` written anew from `tables[NAME]`.

    A table is a schema whose shared parts are marked with `FROM`, or a list of columns.
    """

    def table(mark: re.Match[str]) -> str:
        source = tables[mark["name"]]
        lines = _columns(source) if isinstance(source, list) else _fields(source)
        return "\n".join([f"<!-- table {mark['name']} -->", *lines, "<!-- end -->"])

    return _MARK.sub(table, text)


def _columns(columns: list[dict[str, Any]]) -> list[str]:
    wide = {True: " (with `-o wide`)", False: ""}
    rows = [f"| {found['name'].upper()} | {found['description']}{wide['priority' in found]} |" for found in columns]
    return ["| column | shows |", "|---|---|", *rows]


def _fields(schema: dict[str, Any]) -> list[str]:
    nodes = list(_nodes(schema, ""))
    rows = [f"| `{path}` | {_value(node)} | {default} | {_about(node)} |" for path, node, default in nodes]
    open_parts = [("", schema), *((path, node) for path, node, _ in nodes if node.get(FROM) not in _TOLD_ELSEWHERE)]
    rules = [
        f"- {f'`{path}`: ' if path else ''}{rule['message']}" for path, node in open_parts for rule in _rules(node)
    ]
    return ["| field | value | default | |", "|---|---|---|---|", *rows, *(["", *rules] if rules else [])]


def _rules(node: dict[str, Any]) -> list[dict[str, str]]:
    """The rules of a field, and those of its items if it is a list."""
    return [found for part in (node, node.get("items", {})) for found in part.get("x-kubernetes-validations", [])]


def _nodes(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Path, schema and default of every field below `schema`, parts with their own table as one."""
    for name, field in schema.get("properties", {}).items():
        default = f"`{_yaml(field['default'])}`" if "default" in field else ""
        yield prefix + name, field, "required" if name in schema.get("required", ()) else default
        if not _has_own_table(field):
            inner = field.get("items", field)
            yield from _nodes(inner, f"{prefix}{name}{'[]' if inner is not field else ''}.")


def _has_own_table(field: dict[str, Any]) -> bool:
    return field.get(FROM) in HEADINGS


def _yaml(value: Any) -> str:
    """A default as users would write it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(found)}" for key, found in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _value(field: dict[str, Any]) -> str:
    """What a field may hold, in a few words."""
    if field.get(FROM) in _NOUNS:
        return _NOUNS[field[FROM]]
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"])
    if field.get("format") == "date-time":
        return "time"
    kind = field.get("type", "")
    if kind == "array":
        return f"list of {_value(field['items'])}"
    if "additionalProperties" in field:
        return f"map of {_value(field['additionalProperties'])}"
    low, high = field.get("minimum"), field.get("maximum")
    if low is None and high is None:
        return "text" if kind == "string" else str(kind)
    if high is None:
        return f"{kind}, {'more than' if field.get('exclusiveMinimum') else 'at least'} {low}"
    return f"{kind}, more than {low}, at most {high}" if field.get("exclusiveMinimum") else f"{kind}, {low} to {high}"


def _about(field: dict[str, Any]) -> str:
    link = ""
    if _has_own_table(field):
        heading = HEADINGS[field[FROM]]
        link = f" See [{heading}](#{heading.lower().replace(' ', '-')})."
    return str(field["description"]).replace("|", r"\|") + link
