"""The files that the programs of the node read: certificates, kubeconfigs, and configurations."""

import json
from pathlib import Path
from typing import Any

from cluster.parts.control_plane import Keys, make_keys, write_kubeconfig
from cluster.parts.network import BRIDGE, NODE_ADDRESS, POD_RANGE

API_PORT = 6443
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_ADDRESS = "10.96.0.10"
CNI_PLUGINS = Path("/usr/lib/cni")
NODE_NAME = "tussock-node"
PAUSE_IMAGE = "localhost/pause:1"


def write_all(folder: Path, address: str, cgroup: str) -> None:
    """Write every file into `folder`; `address` is that of the node as the machine sees it."""
    inside = ["127.0.0.1", API_SERVICE_ADDRESS, NODE_ADDRESS]
    hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names = [f"IP:{ip}" for ip in [*inside, address]] + [f"DNS:{host}" for host in hosts]
    authority = make_keys(folder, ",".join(names))
    keys = Keys.within(folder)
    node = authority.sign("node", f"/O=system:nodes/CN=system:node:{NODE_NAME}", f"IP:{NODE_ADDRESS}")
    for name, host, user in (
        ("kubeconfig", address, keys.admin),
        ("inside.kubeconfig", "127.0.0.1", keys.admin),
        ("node.kubeconfig", "127.0.0.1", node),
    ):
        write_kubeconfig(folder / name, f"https://{host}:{API_PORT}", keys.authority, user)
    (folder / "cni").mkdir(exist_ok=True)
    (folder / "cni" / "10-bridge.conflist").write_text(json.dumps(_cni()))
    (folder / "containerd.toml").write_text(_containerd(folder))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(folder, keys, cgroup)))
    (folder / "Corefile").write_text(_corefile(keys))


def _cni() -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,  # a pod may reach itself by its service
        "ipam": {"type": "host-local", "ranges": [[{"subnet": POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}]},
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


def _kubelet(folder: Path, keys: Keys, cgroup: str) -> dict[str, Any]:
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
        "tlsCertFile": str(folder / "pki" / "node.pem"),
        "tlsPrivateKeyFile": str(folder / "pki" / "node.key"),
    }


def _corefile(keys: Keys) -> str:
    return f"""\
.:53 {{
  bind {NODE_ADDRESS}
  errors
  kubernetes cluster.local in-addr.arpa {{
    endpoint https://127.0.0.1:{API_PORT}
    tls {keys.admin.certificate} {keys.admin.key} {keys.authority}
  }}
  cache 5
}}
"""
