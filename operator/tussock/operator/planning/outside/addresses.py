"""The addresses of meta nodes outside of the cluster, as far as the cluster has given them out."""

from collections.abc import Mapping, Sequence
from typing import Any

from tussock.operator.manifests.meta_config import GRPC_PORT, to_toml
from tussock.operator.manifests.outside.services import REPLICA_LABEL, host_of, outside_service
from tussock.operator.planning.words.conditions import Reason, Verdict, progress_verdict
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.resources.meta import Meta, OutsideSection

__all__ = ["hosts_outside", "missing_address", "outside_endpoint", "outside_file", "with_address"]

_SCHEME = "tussock://"


def outside_endpoint(meta: Meta, children: Mapping[Ref, Manifest]) -> str:
    """The URL by which clients outside open the store, with all replicas that have an address; empty without one."""
    found = _addresses(meta, children)
    return f"{_SCHEME}{','.join(found.values())}" if found else ""


def hosts_outside(metas: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The hosts in the endpoints outside of these `Meta` bodies, which their certificate has to be for."""
    endpoints = [str((body.get("status") or {}).get("outsideEndpoint", "")) for body in metas]
    addresses = [one for endpoint in endpoints for one in endpoint.removeprefix(_SCHEME).split(",") if one]
    return tuple(sorted({address.rpartition(":")[0].strip("[]") for address in addresses}))


def outside_file(meta: Meta, children: Mapping[Ref, Manifest], pods: Sequence[Manifest]) -> str:
    """What the nodes are told: the address outside of each, by the one that it advertises."""
    addresses = _addresses(meta, children)
    found = {}
    for pod in pods:
        number = (pod["metadata"].get("labels") or {}).get(REPLICA_LABEL, "")
        ip = (pod.get("status") or {}).get("podIP")
        if ip and number.isascii() and number.isdigit() and int(number) in addresses:
            found[f"{ip}:{GRPC_PORT}"] = addresses[int(number)]
    return to_toml({"addresses": found}, quoted=True)


def missing_address(meta: Meta, children: Mapping[Ref, Manifest]) -> str:
    """A message about the first replica that nobody outside can reach yet; empty if all have an address."""
    section, found = meta.spec.outside, _addresses(meta, children)
    missing = [number for number in range(meta.spec.replicas) if number not in found] if section else []
    if not missing:
        return ""
    name = outside_service(meta.name, missing[0])
    what = "load balancer" if section and section.type == "LoadBalancer" else "node port"
    return (
        f"Clients outside cannot reach {len(missing)} of {meta.spec.replicas} meta nodes yet: Service {name} has no "
        f"{what}. If that lasts: kubectl describe service {name}."
    )


def with_address(verdict: Verdict, missing: str) -> Verdict:
    """The verdict on nodes that serve, if some of them are not reached from outside; another state comes first."""
    if not missing or verdict.reason is not Reason.READY:
        return verdict
    return progress_verdict(Reason.WAITING_FOR_ADDRESS, f"{verdict.message} {missing}", serving=verdict.ready)


def _addresses(meta: Meta, children: Mapping[Ref, Manifest]) -> dict[int, str]:
    """`host:port` of replicas by their number, ascending."""
    section, found = meta.spec.outside, {}
    for number in range(meta.spec.replicas) if section else ():
        service = children.get(Ref("Service", outside_service(meta.name, number)))
        if section and service is not None and (address := _address(section, number, service)):
            found[number] = address
    return found


def _address(section: OutsideSection, number: int, service: Manifest) -> str:
    """The address of a Service; empty while the cluster has not given it out."""
    host = host_of(section, number)
    if section.type == "NodePort":
        ports = (service.get("spec") or {}).get("ports") or [{}]
        return _join(host, ports[0].get("nodePort"))
    given = (((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or [{}])[0]
    # Also with a host of the spec: it leads nowhere before there is a load balancer.
    ready = given.get("hostname") or given.get("ip")
    return _join(host or ready, GRPC_PORT) if ready else ""


def _join(host: str, port: int | None) -> str:
    return f"{f'[{host}]' if ':' in host else host}:{port}" if host and port else ""
