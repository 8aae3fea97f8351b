"""The files that the programs of a node read: certificates, kubeconfigs, and configurations."""

import json
from pathlib import Path
from typing import Any

from cluster.parts.control_plane import Keys, make_keys, write_kubeconfig
from cluster.parts.network import BRIDGE, Network, node_address
from support.network.certificates import Pair

API_PORT = 6443
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_ADDRESS = "10.96.0.10"
CNI_PLUGINS = Path("/usr/lib/cni")
NODE_NAMES = ("tussock-node", "tussock-node-2")
"""The first has the control plane."""
PAUSE_IMAGE = "localhost/pause:1"
METRICS_SERVICE = "external-metrics"


def write_cluster(folder: Path, network: Network) -> None:
    """Write into the first node's `folder` what all nodes, and the machine, need to find and to trust each other."""
    inside = ["127.0.0.1", API_SERVICE_ADDRESS, network.node_address]
    hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names = [f"IP:{ip}" for ip in [*inside, network.address]] + [f"DNS:{host}" for host in hosts]
    authority = make_keys(folder, ",".join(names))
    for number, name in enumerate(NODE_NAMES):
        authority.sign(name, f"/O=system:nodes/CN=system:node:{name}", f"IP:{node_address(number)}")
    authority.sign(METRICS_SERVICE, names=f"DNS:{METRICS_SERVICE}.kube-system.svc")
    keys = Keys.within(folder)
    write_kubeconfig(folder / "kubeconfig", f"https://{network.address}:{API_PORT}", keys.authority, keys.admin)
    (folder / "Corefile").write_text(_corefile(keys, network.node_address))


def write_node(folder: Path, keys: Keys, api_server: str, network: Network) -> None:
    """Write every file of a node into its `folder`; `keys` are the cluster's, `api_server` is an address."""
    own = node_pair(keys, network.number)
    for name, user in (("inside.kubeconfig", keys.admin), ("node.kubeconfig", own)):
        write_kubeconfig(folder / name, f"https://{api_server}:{API_PORT}", keys.authority, user)
    (folder / "cni").mkdir(exist_ok=True)
    (folder / "cni" / "10-bridge.conflist").write_text(json.dumps(_cni(folder, network)))
    (folder / "containerd.toml").write_text(_containerd(folder))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(folder, keys, own, network.name)))


def node_pair(keys: Keys, number: int) -> Pair:
    """The certificate of a node's kubelet."""
    pki = keys.authority.parent
    return Pair(pki / f"{NODE_NAMES[number]}.pem", pki / f"{NODE_NAMES[number]}.key")


def _cni(folder: Path, network: Network) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": False,  # the other node, and policies, have to see a pod's own address
        "hairpinMode": True,  # a pod may reach itself by its service
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": network.pod_range}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            # The usual folder is one for all nodes of the machine, and keeps the addresses of pods that were killed.
            "dataDir": str(folder / "addresses"),
        },
    }
    return {
        "cniVersion": "0.4.0",
        "name": "tussock",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def _containerd(folder: Path) -> str:
    # Where the machine withholds CAP_SYS_RESOURCE, lowering an OOM score fails, and each sandbox with it.
    return f"""\
version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{folder}/cni"
"""


def _kubelet(folder: Path, keys: Keys, own: Pair, cgroup: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(keys.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": "",  # nothing of the machine's names
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        # A disk that is fuller than the usual 85 % is a developer's normal day.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,  # no registry would give an image back
        # New secrets and config maps reach pods within this time; the default is a minute.
        "syncFrequency": "10s",
        # A kubelet clears its folder of what is not its own, and the usual one would be that of all nodes here.
        "podLogsDir": str(folder / "pods"),
        "volumeStatsAggPeriod": "1h",  # walking the volumes would cost time that is measured
        "tlsCertFile": str(own.certificate),
        "tlsPrivateKeyFile": str(own.key),
    }


def _corefile(keys: Keys, address: str) -> str:
    return f"""\
.:53 {{
  bind {address}
  errors
  kubernetes cluster.local in-addr.arpa {{
    endpoint https://127.0.0.1:{API_PORT}
    tls {keys.admin.certificate} {keys.admin.key} {keys.authority}
  }}
  cache 5
}}
"""
