"""Copies of backups whose manifests are golden files: name -> what is applied for it."""

from typing import Any

from support.operator.resources import DEFAULTS, store_with
from tussock.operator.manifests.backup.copy import CopyTask, copy_manifests
from tussock.operator.resources.backup import StateStoreBackup, parse_backup

__all__ = ["COPY_CASES"]


def _backup(**spec: Any) -> StateStoreBackup:
    about = {"name": "nightly", "namespace": "data", "uid": "uid-of-nightly", "generation": 1}
    return parse_backup({"metadata": about, "spec": {"storeRef": {"name": "shop"}, **spec}})


_FAR = {
    "s3": {
        "endpoint": "https://s3.example:9000",
        "bucket": "elsewhere",
        "prefix": "shop",
        "credentialsSecret": {"name": "far-keys", "accessKeyIdKey": "user", "secretAccessKeyKey": "password"},
    }
}
_AMAZON = {"s3": {"bucket": "far", "region": "eu-central-1", "serviceAccount": "bucket-user"}}
_AZURE = {"azure": {"container": "far", "account": "other", "credentialsSecret": {"name": "far-key"}}}
_PLACED = {"podTemplate": {"spec": {"nodeSelector": {"pool": "data"}}}}

COPY_CASES = {
    "managed_to_s3": copy_manifests(
        _backup(destination=_FAR), store_with({"managed": {}}), CopyTask("n-2", ("n-0", "n-1"), verifies=True), DEFAULTS
    ),
    "gcs_to_amazon": copy_manifests(
        _backup(destination=_AMAZON),
        store_with({"gcs": {"bucket": "near", "credentialsSecret": {"name": "gcs-key"}}}, meta=_PLACED),
        CopyTask("n"),
        DEFAULTS,
    ),
    "volume_to_azure": copy_manifests(
        _backup(destination=_AZURE), store_with({"volume": {"size": "5Gi"}}), CopyTask("n"), DEFAULTS
    ),
    "kept_apart": copy_manifests(
        _backup(schedule="@daily", destination={**_FAR, "retention": {"count": 30, "seconds": 31536000}}),
        store_with({"gcs": {"bucket": "near", "credentialsSecret": {"name": "gcs-key"}}}),
        CopyTask("n-2", ("n-0",), verifies=True),
        DEFAULTS,
    ),
    "drill_on_s3": copy_manifests(_backup(verify=True), store_with(_FAR), CopyTask("n", verifies=True), DEFAULTS),
}
