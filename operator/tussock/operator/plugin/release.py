"""Releases what was deleted while no operator is there to clean up after it.

The operator's finalizer holds a resource that needs cleaning up. Once the operator is uninstalled, nothing removes
that, and neither the resource nor its namespace nor its definition can go.
"""

import json
from collections.abc import Sequence

from tussock.operator.cluster.kinds import FINALIZER, RESOURCES
from tussock.operator.planning.words.model import Manifest
from tussock.operator.plugin.kubectl import Kubectl
from tussock.operator.resources.common import GROUP, near_store

__all__ = ["held_resources", "release"]


def held_resources(bodies: Sequence[Manifest], store: str) -> list[Manifest]:
    """The resources that are being deleted and wait for the operator, of the named store; of all if it is empty."""
    return [
        body
        for body in bodies
        if body["metadata"].get("deletionTimestamp")
        and FINALIZER in (body["metadata"].get("finalizers") or ())
        and store in ("", near_store(body))
    ]


def release(kubectl: Kubectl, store: str, *, everywhere: bool) -> list[str]:
    """Remove the finalizer from everything that waits, in the namespace or in all; returns a line about each.

    Leaves resources that are not deleted alone, and others' finalizers, too. Raises `KubectlFailed`.
    """
    told = []
    for kind, (_, plural) in RESOURCES.items():
        resource = f"{plural}.{GROUP}"
        for body in held_resources(kubectl.objects(resource, everywhere=everywhere), store):
            metadata = body["metadata"]
            finalizers = [name for name in metadata["finalizers"] if name != FINALIZER]
            # A list is replaced as a whole, so check that no other client has changed it.
            patch = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
            where = f"--namespace={metadata['namespace']}"
            kubectl.run("patch", resource, metadata["name"], where, "--type=merge", f"--patch={json.dumps(patch)}")
            told.append(_release_line(kind, body))
    return told


def _release_line(kind: str, body: Manifest) -> str:
    metadata, url = body["metadata"], (body.get("status") or {}).get("url", "")
    what = f"{kind} {metadata['namespace']}/{metadata['name']} is released"
    if kind == "StateStore" and url:
        way_on = f"a StateStore with spec.adopt: {json.dumps(metadata['uid'])} can continue with it"
        return f"{what}; {url} stays as it is, with the object tussock-owner; {way_on}."
    return f"{what}."
