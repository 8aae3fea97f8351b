"""Takes secrets out of what a report shows: texts, such as logs, and objects of the API.

Three nets, since none is enough. Values that are known to be secret are taken out wherever they stand, also encoded. Of
an object only what cannot hold a secret by its kind stays: the values of variables, of programs' arguments and of other
people's annotations are left out, unless the operator itself has set them. And what looks like a secret in a text is
taken out: passwords in URLs, tokens, keys.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

__all__ = ["LEFT_OUT", "Redactor", "hidden_values", "values_of_secret"]

LEFT_OUT = "<left out>"
LONG_MIN = 6
WORD_MAX = 12
"""Shorter values, and those that may be an ordinary word, are taken out only where they stand alone."""
LINE_MIN = 12
"""Of a value with several lines, such as a key, each line of at least this length is secret by itself."""

_WORDS = (
    r"pass(?:word|wd|phrase)|pwd|secret|token|credentials?|signature|(?:api|access|private|account|shared)[._-]?keys?"
)
_SECRET_NAME = re.compile(rf"{_WORDS}|connection[._-]?string|authorization", re.IGNORECASE)
"""Names of fields whose text is left out."""
_NAMES_ONLY = {
    "secretName",
    "secretVersion",
    "automountServiceAccountToken",
    "expirationSeconds",
    "tussock.dev/secrets-seen",
}
"""Fields that such words name, and whose values name or count something."""
_KEPT_ANNOTATIONS = re.compile(
    r"tussock\.dev/|deployment\.kubernetes\.io/|controller\.kubernetes\.io/|kubectl\.kubernetes\.io/restartedAt$|"
    r"(?:pv|volume)\.kubernetes\.io/"
)
_KEPT_VARIABLES = re.compile(
    r"TUSSOCK_(?:STORE|WRITER_ID|CHECKPOINT|COMPUTE_MODE|DRAIN_SECONDS|EXECUTORS_FILE|SPARK_CONF|STATUS_PORT|"
    r"TERMINATION_FILE|META_CONFIG|BUCKET_CREDENTIALS|TLS_\w+|COMPACTOR_\w+|OPERATOR_\w+)|HOME|SPARK_LOCAL_IP|"
    r"AWS_(?:REGION|ENDPOINT_URL|ALLOW_HTTP)"
)
_KEPT_WORDS = re.compile(
    r"tussock|meta|serve|compactor|work|backup|restore|python|-m|tussock(?:\.\w+)+|server|true|minio|"
    r"\$\(POD_IP\):\d+|/(?:opt|etc/tussock|data|tmp)/[\w./-]*|-\w|--[\w.-]+"
)
"""Arguments that the operator gives, paths in its folders, and names of options."""

_OWN_WORDS = {"tussock", "minio"}
"""No secrets, even as the value of one: they are in the names of everything."""
_QUOTE = r"(?:\\*[\"'])?"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL), ""),
    # In URLs: user and password before the host, and signatures and tokens after the path.
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@\"'<>]{1,2000}@", re.IGNORECASE), r"\1{}@"),
    (re.compile(rf"([?&;][\w.-]{{0,60}}(?:{_WORDS}|sig)[\w.-]{{0,60}}=)[^&\s\"'<>]+", re.IGNORECASE), r"\1{}"),
    (re.compile(rf"(authorization{_QUOTE}\s*[:=]\s*{_QUOTE})[^\"'\r\n]+", re.IGNORECASE), r"\1{}"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE), r"\1 {}"),
    # `password: x`, `"token": "x"`, `secret_key = x`, and the same escaped within another text.
    (
        re.compile(
            rf"((?:{_WORDS})[\w.-]{{0,60}}{_QUOTE}\s*[:=]\s*)(?![\[{{\s])"
            r"(?:\\+\"(?:(?!\\+\").)*\\+\"|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\s,;&}\])]+)",
            re.IGNORECASE,
        ),
        r"\1{}",
    ),
    # `--password x`, and as a list in JSON.
    (
        re.compile(
            rf"(?<![\w-])(--?[\w-]{{0,60}}(?:{_WORDS})[\w-]{{0,60}}{_QUOTE}[=,\s]+{_QUOTE})[^\s\"',]+", re.IGNORECASE
        ),
        r"\1{}",
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), "{}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), "{}"),
    # Not the names of metrics, which have no digits.
    (re.compile(r"\btussock_(?=[a-z_]*[A-Z0-9-])[\w-]{20,}"), "{}"),
    (re.compile(r"\bgh[a-z]_\w{20,}|\bgithub_pat_\w{20,}|\bxox[a-z]-[\w-]{10,}"), "{}"),
)


class Redactor:
    """Takes out `values`, which are known to be secret, and what looks like a secret."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value)} - _OWN_WORDS
        alone = {form for form in forms if len(form) < LONG_MIN or (form.isalpha() and len(form) < WORD_MAX)}
        self._long = sorted(forms - alone, key=len, reverse=True)
        short = sorted(alone, key=len, reverse=True)
        self._short = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, short))})(?![\w-])") if short else None

    def text(self, text: str) -> str:
        """A text without secrets."""
        for form in self._long:
            text = text.replace(form, LEFT_OUT)
        if self._short is not None:
            text = self._short.sub(LEFT_OUT, text)
        for pattern, shown in _PATTERNS:
            text = pattern.sub(shown.format(LEFT_OUT) if shown else LEFT_OUT, text)
        return text

    def body(self, body: Any, field: str = "") -> Any:
        """An object of the API, or a part of it that is the value of `field`, without secrets; a copy."""
        match body:
            case Mapping():
                return {
                    self.text(str(name)): self._member(str(name), value, field)
                    for name, value in body.items()
                    if name != "managedFields"
                }
            case list() | tuple():
                return [self._entry(entry, field) for entry in body]
            case str():
                return self.text(body)
        return body

    def _member(self, name: str, value: Any, of: str) -> Any:
        if not isinstance(value, str):
            return self.body(value, name)
        if of == "annotations" and not _KEPT_ANNOTATIONS.match(name):
            return LEFT_OUT
        if _is_secret(name) and value:
            return LEFT_OUT
        # A ConfigMap's file may be an object of the API itself, such as the template of executors.
        return self._json(value) if of in ("data", "annotations") else self.text(value)

    def _entry(self, entry: Any, of: str) -> Any:
        if of in ("args", "command", "arguments") and isinstance(entry, str):
            return self.text(_argument(entry))
        if of in ("env", "httpHeaders") and isinstance(entry, Mapping) and isinstance(entry.get("value"), str):
            kept = of == "env" and _KEPT_VARIABLES.fullmatch(str(entry.get("name")))
            return {**self.body(entry, of), "value": self.text(entry["value"]) if kept else LEFT_OUT}
        return self.body(entry)

    def _json(self, text: str) -> str:
        try:
            found = json.loads(text)
        except ValueError:
            return self.text(text)
        return json.dumps(self.body(found), indent=1) if isinstance(found, dict | list) else self.text(text)


def hidden_values(body: Any, field: str = "") -> Iterator[str]:
    """The texts that `Redactor.body` leaves out of an object by their place alone: a log may repeat them.

    Not those that are no secrets by all appearance, such as a level of a log, a port or a switch.
    """
    if isinstance(body, Mapping):
        for name, value in body.items():
            if isinstance(value, str) and value and _is_secret(str(name)):
                yield value
            elif isinstance(value, str) and field == "data":
                try:
                    yield from hidden_values(json.loads(value))
                except ValueError:
                    continue
            elif name != "managedFields":
                yield from hidden_values(value, str(name))
    elif isinstance(body, list | tuple):
        for entry in body:
            if field in ("args", "command", "arguments") and isinstance(entry, str):
                if _argument(entry) != entry:
                    name, equals, value = entry.partition("=") if entry.startswith("-") else ("", "", entry)
                    # `-pVALUE` is an option of one letter with its value.
                    value = value if equals or not name else entry[2:]
                    yield from [value] if _is_telling(name, value) else []
            elif field in ("env", "httpHeaders") and isinstance(entry, Mapping):
                name, value = str(entry.get("name")), entry.get("value")
                if isinstance(value, str) and not _KEPT_VARIABLES.fullmatch(name) and _is_telling(name, value):
                    yield value
            else:
                yield from hidden_values(entry)


def values_of_secret(secret: Mapping[str, Any]) -> Iterator[str]:
    """The values of a Secret, as text, but for certificates, which everybody is shown."""
    for encoded in (secret.get("data") or {}).values():
        value = base64.b64decode(encoded).decode(errors="replace")
        if not value.startswith("-----BEGIN CERTIFICATE-----"):
            yield value


def _is_telling(name: str, value: str) -> bool:
    """Whether a value that is left out may be secret, by its name or its looks."""
    return bool(value) and (_is_secret(name) or (len(value) >= LONG_MIN and not value.isalpha()))


def _is_secret(name: str) -> bool:
    return name not in _NAMES_ONLY and _SECRET_NAME.search(name) is not None


def _argument(argument: str) -> str:
    """An argument of a program: as it is if the operator may have given it, else at most the name of its option."""
    if _KEPT_WORDS.fullmatch(argument):
        return argument
    name, equals, value = argument.partition("=")
    if argument.startswith("-") and equals:
        return argument if _KEPT_WORDS.fullmatch(value) and not _is_secret(name) else f"{name}={LEFT_OUT}"
    return LEFT_OUT


def _forms(value: str) -> Iterator[str]:
    """A secret value as texts may show it: itself, its lines, and encoded for URLs, for JSON and in base 64."""
    value = value.strip()
    if not value:
        return
    yield from (value, quote(value, safe=""), json.dumps(value)[1:-1])
    for form in _in_base64(value.encode()):
        yield from (form, form.replace("+", "-").replace("/", "_"))
    yield from (line.strip() for line in value.splitlines() if len(line.strip()) >= LINE_MIN)
    try:
        found = json.loads(value)
    except ValueError:
        return
    if isinstance(found, dict):
        # The key of a cloud's account is one field of a file.
        for field in found.values():
            if isinstance(field, str) and len(field) >= LINE_MIN:
                yield from _forms(field)


def _in_base64(value: bytes) -> Iterator[str]:
    """What base 64 of a text has in it wherever the value begins in the text, as in `user:password`."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + value).decode()
        # Without the digits that depend on the neighbours, too.
        form = encoded[-(-8 * before // 6) : 8 * (before + len(value)) // 6]
        if len(form) >= LONG_MIN:
            yield form
