"""Gives claims their volumes: a folder of the machine for each, as a `local` volume, which honours `fsGroup`.

A cluster elsewhere has a provisioner; this is the smallest program that does the same. Both nodes see the folder, so it
is what a network file system is elsewhere: a pod finds its volume on any node. Run it as
`python -m cluster.parts.volumes KUBECONFIG FOLDER`.
"""

import shutil
import sys
import time
from pathlib import Path

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from cluster.parts.configuration import NODE_NAMES

PROVISIONER = "tussock.dev/folders"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
SECONDS_BETWEEN = 0.5


def volume_for(claim: client.V1PersistentVolumeClaim, folder: Path) -> client.V1PersistentVolume:
    """The volume that only this claim can bind."""
    names = list(NODE_NAMES)
    there = client.V1NodeSelectorRequirement(key="kubernetes.io/hostname", operator="In", values=names)
    terms = client.V1NodeSelector(node_selector_terms=[client.V1NodeSelectorTerm(match_expressions=[there])])
    return client.V1PersistentVolume(
        metadata=client.V1ObjectMeta(name=f"pvc-{claim.metadata.uid}", annotations={PROVISIONED_BY: PROVISIONER}),
        spec=client.V1PersistentVolumeSpec(
            access_modes=claim.spec.access_modes,
            capacity={"storage": claim.spec.resources.requests["storage"]},
            claim_ref=client.V1ObjectReference(
                kind="PersistentVolumeClaim",
                namespace=claim.metadata.namespace,
                name=claim.metadata.name,
                uid=claim.metadata.uid,
            ),
            local=client.V1LocalVolumeSource(path=str(folder)),
            node_affinity=client.V1VolumeNodeAffinity(required=terms),
            persistent_volume_reclaim_policy="Delete",
            storage_class_name=claim.spec.storage_class_name,
        ),
    )


def provide(api: client.CoreV1Api, classes: set[str], folder: Path) -> None:
    """One round: a volume for each claim of these classes that a pod waits for, and none for claims that are gone."""
    volumes = {volume.metadata.name: volume for volume in api.list_persistent_volume().items}
    for claim in api.list_persistent_volume_claim_for_all_namespaces().items:
        name = f"pvc-{claim.metadata.uid}"
        wanted = SELECTED_NODE in (claim.metadata.annotations or {})  # the scheduler found a place for its first pod
        if wanted and claim.spec.storage_class_name in classes and name not in volumes:
            (folder / name).mkdir(parents=True, exist_ok=True)
            api.create_persistent_volume(volume_for(claim, folder / name))
    for name, volume in volumes.items():
        ours = (volume.metadata.annotations or {}).get(PROVISIONED_BY) == PROVISIONER
        if ours and volume.status.phase in ("Released", "Failed"):
            shutil.rmtree(folder / name, ignore_errors=True)
            api.delete_persistent_volume(name)


def main() -> None:
    """Provide volumes until the process is ended; an API server that is away is asked again."""
    kubeconfig, folder = sys.argv[1], Path(sys.argv[2])
    config.load_kube_config(kubeconfig)
    api, storage = client.CoreV1Api(), client.StorageV1Api()
    while True:
        try:
            found = storage.list_storage_class().items
            provide(api, {each.metadata.name for each in found if each.provisioner == PROVISIONER}, folder)
        except (ApiException, HTTPError) as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        time.sleep(SECONDS_BETWEEN)


if __name__ == "__main__":
    main()
