"""What a report holds: objects, events, logs and versions, asked of the cluster with the user's rights.

What the user may not read, or what does not answer, is noted in the report, and the rest is in it.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from tussock.operator.cluster.kinds import CHILDREN, OURS, RESOURCES, Kind
from tussock.operator.manifests.labels import STORE_LABEL
from tussock.operator.planning.words.model import Manifest
from tussock.operator.plugin.kubectl import Kubectl, KubectlFailed
from tussock.operator.plugin.options import status_of
from tussock.operator.plugin.report.archive import Archive
from tussock.operator.plugin.report.redaction import LEFT_OUT, Redactor, hidden_values, values_of_secret
from tussock.operator.plugin.tables import epochs_text, status_text
from tussock.operator.resources.common import near_store

__all__ = ["Scope", "gather"]

OBJECTS_MAX = 500
"""Of a kind."""
EVENTS_MAX = 1_000
CONTAINERS_MAX = 200
LOG_BYTES_MAX = 1 << 20
LOG_SECONDS = 60.0
OPERATOR_LABELS = "app.kubernetes.io/name=tussock-operator"
OPERATOR_PORT = 8080
OPERATORS_MAX = 5


class Scope(NamedTuple):
    """What a report is about."""

    namespace: str
    store: str
    """Empty: all stores of the namespace."""
    tail: int
    """Lines of each log."""

    @property
    def labels(self) -> str:
        """Selects what the operator has made for it."""
        return f"{STORE_LABEL}={self.store}" if self.store else OURS


class _Notes:
    """What could not be asked for, and why."""

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}

    def attempt(self, what: str, ask: Callable[[], Any], default: Any) -> Any:
        """The answer; `default`, with a note, if there is none."""
        try:
            return ask()
        except (KubectlFailed, ValueError) as error:
            self.missing[what] = str(error)
            return default


def gather(kubectl: Kubectl, scope: Scope, archive: Archive, at: str) -> None:
    """Put everything about the scope into the archive, without secrets. Raises no error of the cluster."""
    notes = _Notes()
    objects = dict(_objects(kubectl, scope, notes))
    operators = notes.attempt(
        "pods of the operator", lambda: kubectl.objects("pods", everywhere=True, labels=OPERATOR_LABELS), []
    )[:OPERATORS_MAX]
    secrets = notes.attempt("secrets, to take their values out of texts", lambda: _secrets(kubectl), [])
    hidden = [value for bodies in (*objects.values(), operators) for value in hidden_values(bodies)]
    redactor = Redactor([*hidden, *(value for secret in secrets for value in values_of_secret(secret))])
    for kind, bodies in objects.items():
        for body in bodies[:OBJECTS_MAX]:
            archive.add(f"objects/{kind}/{body['metadata']['name']}.json", _shown(redactor.body(body)))
        if len(bodies) > OBJECTS_MAX:
            notes.missing[f"objects/{kind}"] = f"{len(bodies) - OBJECTS_MAX} more than {OBJECTS_MAX}"
    archive.add("summary.txt", redactor.text(_summary(objects)))
    names = {body["metadata"]["name"] for bodies in objects.values() for body in bodies}
    events = notes.attempt("events", lambda: kubectl.objects("events.v1."), [])
    archive.add("events.json", _shown([redactor.body(one) for one in _about(events, names, scope)]))
    for path, text in _logs(kubectl, objects.get("Pod", []), scope.tail, notes, ""):
        archive.add(path, redactor.text(text))
    for path, text in _of_operators(kubectl, operators, scope.tail, notes):
        archive.add(path, redactor.text(text))
    about = {
        "at": at,
        "namespace": scope.namespace,
        "store": scope.store or None,
        "tussock": metadata.version("tussock"),
        "python": sys.version.split()[0],
        "kubernetes": notes.attempt("versions", lambda: json.loads(kubectl.run("version", "--output=json")), None),
        "images": sorted(set(_images([*objects.get("Pod", []), *operators]))),
        "left_out": archive.left_out,
        "not_answered": {what: redactor.text(why) for what, why in notes.missing.items()},
        "redaction": f"'{LEFT_OUT}' stands for values of {len(secrets)} secrets of the namespace, for values of "
        "variables and arguments that the operator has not set, and for what looks like a secret",
    }
    archive.close_with("report.json", _shown(about))


def _objects(kubectl: Kubectl, scope: Scope, notes: _Notes) -> Iterator[tuple[str, list[Manifest]]]:
    for name, kind in {**RESOURCES, **CHILDREN}.items():
        labels = "" if name in RESOURCES else scope.labels

        def ask(resource: str = _resource(kind), labels: str = labels) -> list[Manifest]:
            return kubectl.objects(resource, labels=labels)

        found = notes.attempt(f"objects/{name}", ask, [])
        yield name, [body for body in found if labels or scope.store in ("", near_store(body))]


def _resource(kind: Kind) -> str:
    return f"{kind.plural}.{kind.version}.{kind.group}"


def _secrets(kubectl: Kubectl) -> list[Manifest]:
    """All secrets of the namespace, but for Helm's releases, which are large: users name theirs as they like."""
    answer = kubectl.run("get", "secrets", "--output=json", "--field-selector=type!=helm.sh/release.v1")
    return list(json.loads(answer)["items"])


def _about(events: Sequence[Manifest], names: set[str], scope: Scope) -> list[Manifest]:
    """The newest events about these objects; without a store about all objects of the namespace."""
    found = [one for one in events if not scope.store or _subject(one) in names]
    return sorted(found, key=lambda one: str(one["metadata"].get("creationTimestamp")))[-EVENTS_MAX:]


def _subject(event: Manifest) -> str:
    """The name of the object that an event is about, in either form that servers have for events."""
    return str((event.get("involvedObject") or event.get("regarding") or {}).get("name", ""))


def _summary(objects: dict[str, list[Manifest]]) -> str:
    stores = objects.get("StateStore", [])
    parts = [body for kind in RESOURCES if kind != "StateStore" for body in objects.get(kind, [])]
    epochs = (
        epochs_text(store, [part for part in parts if near_store(part) == store["metadata"]["name"]])
        for store in stores
    )
    return "\n".join([status_text(stores, parts), *epochs])


def _logs(
    kubectl: Kubectl, pods: Sequence[Manifest], tail: int, notes: _Notes, folder: str
) -> Iterator[tuple[str, str]]:
    """The ends of the logs of all containers, and of those before them where a container has ended."""
    containers = [(pod, one) for pod in pods for one in _containers(pod)]
    for number, (pod, container) in enumerate(containers):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        path = f"{folder}logs/{name}/{container}"
        if number >= CONTAINERS_MAX:
            notes.missing["logs"] = f"those of {len(containers) - CONTAINERS_MAX} containers more"
            return
        for before in (False, True) if _has_ended(pod, container) else (False,):
            option = ["--previous"] if before else []
            command = (
                *("logs", name, f"--namespace={namespace}", f"--container={container}", "--timestamps", *option),
                *(f"--tail={tail}", f"--limit-bytes={LOG_BYTES_MAX}"),
            )

            def ask(command: tuple[str, ...] = command) -> str:
                return kubectl.run(*command, seconds=LOG_SECONDS)

            found = notes.attempt(f"{path}{'.before' if before else ''}.log", ask, None)
            if found is not None:
                yield f"{path}{'.before' if before else ''}.log", found


def _containers(pod: Manifest) -> list[str]:
    spec = pod.get("spec") or {}
    return [one["name"] for field in ("initContainers", "containers") for one in spec.get(field) or ()]


def _has_ended(pod: Manifest, container: str) -> bool:
    held = status_of(pod)
    states = [*held.get("initContainerStatuses", ()), *held.get("containerStatuses", ())]
    return any(one["name"] == container and one.get("restartCount", 0) > 0 for one in states)


def _of_operators(kubectl: Kubectl, pods: Sequence[Manifest], tail: int, notes: _Notes) -> Iterator[tuple[str, str]]:
    """The log and the metrics of each replica of the operator, where the user may look."""
    yield from _logs(kubectl, pods, tail, notes, "operator/")
    for pod in pods:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/pods/{name}:{OPERATOR_PORT}/proxy/metrics"

        def ask(path: str = path) -> str:
            return kubectl.run("get", "--raw", path)

        found = notes.attempt(f"operator/metrics/{name}.txt", ask, None)
        if found is not None:
            yield f"operator/metrics/{name}.txt", found


def _images(pods: Sequence[Manifest]) -> Iterator[str]:
    for pod in pods:
        yield from (one.get("image", "") for one in (pod.get("spec") or {}).get("containers") or ())


def _shown(body: Any) -> str:
    return f"{json.dumps(body, indent=1)}\n"
