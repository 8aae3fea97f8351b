"""The controller of `Compute`: gathers the facts for its plan, from memory and from two probes."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tussock.operator.cluster.api import Api
from tussock.operator.cluster.errors import ApiNotFound
from tussock.operator.cluster.seen import Key, key_of
from tussock.operator.handlers.certificates import certificates_end, own_certificate_fact
from tussock.operator.handlers.clients.admissions import admission_of, far_jobs, issue_granted, surroundings
from tussock.operator.handlers.job_turns import jobs_before, program_subject
from tussock.operator.handlers.rollouts import settled_parts
from tussock.operator.handlers.service import node_fact, services_before
from tussock.operator.handlers.world import Controller, World, make_once
from tussock.operator.manifests.certificates import job_certificate
from tussock.operator.manifests.compute.conf import STATUS_PORT
from tussock.operator.manifests.compute.pods import ROLE_LABEL
from tussock.operator.manifests.compute.spark_security import SECRET_BYTES, spark_secret
from tussock.operator.manifests.labels import digest
from tussock.operator.planning.clients.certificates import ISSUE_OWN_CERTIFICATE
from tussock.operator.planning.clients.grants import has_grant
from tussock.operator.planning.compute.facts import PROGRAM_SECONDS, ComputeFacts
from tussock.operator.planning.compute.plan import plan_compute
from tussock.operator.planning.compute.secrets import DRAW_SPARK_SECRET
from tussock.operator.planning.words.facts import DriverFact
from tussock.operator.planning.words.model import Manifest, Observed, Ref
from tussock.operator.probes.computes.driver import ask_driver
from tussock.operator.resources.common import near_store
from tussock.operator.resources.compute import Compute, ConfigMapKey, parse_compute
from tussock.operator.resources.store import StoreResource

__all__ = ["COMPUTE"]

DRIVER_SECONDS = 12.0
"""Each new epoch that is found writes the status, so not more often. It is below the 15 s between two looks at a
driver: otherwise each second look would find an answer just too young to ask again."""


def _observe(world: World, compute: Compute, body: Manifest) -> Observed[ComputeFacts]:
    key = key_of(body)
    others, admission = surroundings(world, compute, "Compute"), admission_of(world, compute)
    children = world.seen.children(key)
    application, missing = _application(world, key, compute)
    # What a store that allows nothing has is not even looked at.
    store = admission.store if has_grant(compute, admission) else None
    settled = settled_parts(world, store) if store is not None else {}
    certificate, ends = None, str(compute.status.get("certificatesExpireTime", ""))
    if store is not None and not compute.is_being_deleted:
        certificate = own_certificate_fact(world, compute, store, job_certificate(compute, store))
        ends = certificates_end(store, certificate, compute.status, children)
    before: tuple[str, ...] = ()
    # Without the digest of its program the plan changes nothing.
    if application is not None and compute.is_service:
        before = services_before(world, compute, application, settled, children)
    elif application is not None:
        before = jobs_before(world, compute, application, settled)
    facts = ComputeFacts(
        defaults=world.defaults,
        application=application,
        missing=missing,
        driver=None if compute.is_service else _driver(world, key, children),
        node=node_fact(world, key, compute, store, children) if compute.is_service else None,
        settled=settled,
        certificate_due=certificate is not None and certificate.due,
        certificate_expires=ends,
        has_cert_manager=world.has_cert_manager,
        before=before,
        admission=admission,
        elsewhere=_jobs_elsewhere(world, compute, store) if store is not None else (),
    )
    return Observed(facts, children, others)


def _jobs_elsewhere(world: World, compute: Compute, store: StoreResource) -> list[Manifest]:
    """The bodies of the store's jobs in all namespaces that it allows, but the job's own."""
    near = [one for one in world.seen.all_of("Compute", store.namespace) if near_store(one) == store.name]
    return [one for one in (*near, *far_jobs(world, store)) if one["metadata"]["namespace"] != compute.namespace]


def _application(world: World, key: Key, compute: Compute) -> tuple[str | None, str]:
    """The digest of the program's ConfigMap, `None` until it was read, and a message if something is missing."""
    source, field = _source(compute)
    if source is None:
        return "", ""
    run = partial(_read_application, world.api, compute.namespace, source, field)
    found = world.probes.fact(key, program_subject(source.name, source.key), run, PROGRAM_SECONDS)
    return (None, "") if found is None else found


def _source(compute: Compute) -> tuple[ConfigMapKey | None, str]:
    """The key of a ConfigMap that has the program, or a service's module; and the field that names it."""
    if not compute.is_service:
        return compute.program.config_map, "spec.application"
    folder = compute.service.config_map
    key = None if folder is None else ConfigMapKey(name=folder.name, key=compute.service.module_file)
    return key, "spec.service"


async def _read_application(api: Api, namespace: str, source: ConfigMapKey, field: str) -> tuple[str, str]:
    try:
        body = await api.get("ConfigMap", namespace, source.name)
    except ApiNotFound:
        return "", f"There is no ConfigMap {source.name}, which {field} names; create it."
    data = {**(body.get("data") or {}), **(body.get("binaryData") or {})}
    if source.key not in data:
        return "", f"ConfigMap {source.name} has no key {source.key}, which {field} names; add it."
    return digest(data), ""


def _driver(world: World, key: Key, children: Mapping[Ref, Manifest]) -> DriverFact | None:
    """The status that the running driver reports; `None` if none runs. One on a lost node still counts as running."""
    for ref, pod in sorted(children.items(), key=lambda item: "deletionTimestamp" in item[1]["metadata"]):
        status = pod.get("status") or {}
        is_driver = ref.kind == "Pod" and pod["metadata"]["labels"].get(ROLE_LABEL) == "driver"
        if is_driver and status.get("phase") == "Running" and status.get("podIP"):
            host = f"[{status['podIP']}]" if ":" in status["podIP"] else status["podIP"]
            run = partial(ask_driver, f"{host}:{STATUS_PORT}")
            return world.probes.fact(key, ("driver", pod["metadata"]["uid"]), run, DRIVER_SECONDS)
    return None


async def _draw_secret(world: World, compute: Compute, _: Mapping[str, Any]) -> None:
    """Draw the secret that driver and executors share; keeps one that exists."""
    secret = spark_secret(compute, world.system.random_bytes(SECRET_BYTES).hex())
    await make_once(world, secret, compute.namespace)


async def _issue_certificate(world: World, compute: Compute, _: Mapping[str, Any]) -> None:
    await issue_granted(world, compute, job_certificate)


COMPUTE = Controller(
    kind="Compute",
    parse=parse_compute,
    observe=_observe,
    plan=plan_compute,
    works={DRAW_SPARK_SECRET: _draw_secret, ISSUE_OWN_CERTIFICATE: _issue_certificate},
)
"""The controller of `Compute`."""
