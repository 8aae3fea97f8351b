"""Enforces NetworkPolicies on the node: what no policy of a pod lets in is dropped on its way to the pod.

A cluster elsewhere has Calico, Cilium or the like; this is the smallest that means the same by policies about what
comes in. Nodes are always let in (kubelet, API server), and so is a pod to itself. Refused packets are dropped, as
those two do, so a client waits in vain instead of being told. Peers by `ipBlock` and ranges of ports let nobody in
here, and policies about what goes out do nothing: neither the operator nor the chart makes any.

Run as `python -m cluster.parts.policies KUBECONFIG` in the network namespace of each node.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from threading import Event, Thread
from typing import Any, NamedTuple

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from cluster.parts.configuration import NODE_NAMES
from cluster.parts.network import node_address

SECONDS_BETWEEN_TRIES = 0.5


class Pod(NamedTuple):
    """A pod as policies see it; its namespace by name and by labels, its ports by their names."""

    namespace: str
    namespace_labels: Mapping[str, str]
    labels: Mapping[str, str]
    address: str
    ports: Mapping[str, int]


def pod_of(body: client.V1Pod, namespace_labels: Mapping[str, str]) -> Pod:
    """The `Pod` of a pod's object, if it has an address."""
    ports = {port.name: port.container_port for each in body.spec.containers for port in each.ports or () if port.name}
    meta = body.metadata
    return Pod(meta.namespace, namespace_labels, meta.labels or {}, body.status.pod_ip, ports)


def selects(selector: client.V1LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether a selector matches these labels; an empty one matches all."""

    def holds(term: client.V1LabelSelectorRequirement) -> bool:
        value, values = labels.get(term.key), term.values or ()
        among, there = value in values, value is not None
        return {"In": among, "NotIn": not among, "Exists": there, "DoesNotExist": not there}[term.operator]

    wanted = (selector.match_labels or {}).items()
    return wanted <= labels.items() and all(map(holds, selector.match_expressions or ()))


def is_peer(pod: Pod, peer: client.V1NetworkPolicyPeer, namespace: str) -> bool:
    """Whether a peer of a policy matches this pod: in the policy's `namespace`, unless the peer selects others."""
    elsewhere = peer.namespace_selector
    near = pod.namespace == namespace if elsewhere is None else selects(elsewhere, pod.namespace_labels)
    return not peer.ip_block and near and (peer.pod_selector is None or selects(peer.pod_selector, pod.labels))


def let_in(pod: Pod, policy: client.V1NetworkPolicy, pods: Collection[Pod]) -> Iterator[str]:
    """The sources and ports that a policy lets in to one of its pods, as options of iptables."""
    for rule in policy.spec.ingress or ():
        peers, ports = rule._from or (), rule.ports or ()
        sources = [f"-s {other.address}" for other in pods for peer in peers if is_peer(other, peer, pod.namespace)]
        for source in sources if peers else [""]:
            if not ports:
                yield source
            for port in ports:
                number = pod.ports.get(port.port, port.port)
                if isinstance(number, int) and port.end_port is None:
                    yield f"{source} -p {port.protocol.lower()} --dport {number}"


def ruleset(policies: Collection[client.V1NetworkPolicy], pods: Collection[Pod]) -> str:
    """All policies as input of `iptables-restore`: a pod that any of them selects is closed but for what they let in.

    In the table `mangle`, so that what passes there still goes through the rules of kube-proxy in `filter`.
    """
    lines = ["*mangle", "-F FORWARD", "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"]
    # What a node sends to its own pods is not forwarded; this is for the API server and pods of another node.
    lines += [f"-A FORWARD -s {node_address(number)} -j ACCEPT" for number in range(len(NODE_NAMES))]
    for pod in sorted(pods, key=lambda pod: pod.address):
        mine = [
            policy
            for policy in policies
            if policy.metadata.namespace == pod.namespace
            and "Ingress" in policy.spec.policy_types
            and selects(policy.spec.pod_selector, pod.labels)
        ]
        if mine:
            found = {f"-s {pod.address}", *(who for policy in mine for who in let_in(pod, policy, pods))}
            lines += [f"-A FORWARD -d {pod.address} {who} -j ACCEPT" for who in sorted(found)]
            lines.append(f"-A FORWARD -d {pod.address} -j DROP")
    return "\n".join([*lines, "COMMIT", ""])


def follow(list_all: Callable[..., Any], keep: Callable[[Collection[Any]], None]) -> None:
    """Give all objects of a kind to `keep`, at first and after each change; waits for an API server that is away."""
    while True:
        try:
            listed = list_all()
            objects = {item.metadata.uid: item for item in listed.items}
            keep(list(objects.values()))
            for event in watch.Watch().stream(list_all, resource_version=listed.metadata.resource_version):
                item = event["object"]
                objects[item.metadata.uid] = item
                if event["type"] == "DELETED":
                    del objects[item.metadata.uid]
                keep(list(objects.values()))
        except (ApiException, HTTPError) as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        time.sleep(SECONDS_BETWEEN_TRIES)


def main() -> None:
    """Enforce until the process is ended; while the API server is away, the last known rules stay in force."""
    config.load_kube_config(sys.argv[1])
    core = client.CoreV1Api()
    known: dict[str, Collection[Any]] = {}
    changed = Event()

    def keep(kind: str, objects: Collection[Any]) -> None:
        known[kind] = objects
        changed.set()

    kinds = {
        "policies": client.NetworkingV1Api().list_network_policy_for_all_namespaces,
        "pods": core.list_pod_for_all_namespaces,
        "namespaces": core.list_namespace,
    }
    threads = [Thread(target=follow, args=(each, partial(keep, kind)), daemon=True) for kind, each in kinds.items()]
    for thread in threads:
        thread.start()
    enforced = ""
    while all(thread.is_alive() for thread in threads):
        if not changed.wait(timeout=5) or len(known) < len(kinds):
            continue
        changed.clear()
        labels = {each.metadata.name: each.metadata.labels or {} for each in known["namespaces"]}
        # The address of a pod that has ended may be another's by now, and one of the host has that of the node.
        pods = [
            pod_of(body, labels.get(body.metadata.namespace, {}))
            for body in known["pods"]
            if body.status.pod_ip and body.status.phase not in ("Succeeded", "Failed") and not body.spec.host_network
        ]
        if (wanted := ruleset(known["policies"], pods)) != enforced:
            subprocess.run(["iptables-restore", "--noflush"], input=wanted, text=True, check=True)
            enforced = wanted
    sys.exit("a watch has ended")


if __name__ == "__main__":
    main()
