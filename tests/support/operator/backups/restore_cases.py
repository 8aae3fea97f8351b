"""Restores whose manifests are golden files: name -> what is applied for it."""

from support.operator.resources import DEFAULTS, store_with
from tussock.operator.manifests.backup.restore import clone_manifests, restore_manifests

__all__ = ["RESTORE_CASES"]

_MANAGED = store_with({"managed": {}})
_VOLUME = store_with({"volume": {"size": "5Gi"}})
_S3 = {
    "endpoint": "https://s3.example:9000",
    "bucket": "warehouse",
    "prefix": "stores/shop",
    "credentialsSecret": {"name": "old-keys", "accessKeyIdKey": "user", "secretAccessKeyKey": "password"},
}
_ELSEWHERE = store_with({"s3": _S3})
_AMAZON = store_with(
    {"s3": {"bucket": "new", "region": "eu-central-1", "serviceAccount": "bucket-user"}}, images={"node": "node:2"}
)
_AZURE = store_with({"azure": {"container": "shop", "account": "old", "credentialsSecret": {"name": "azure-key"}}})
_GCS = store_with({"gcs": {"bucket": "new", "credentialsSecret": {"name": "gcs-key"}}})

RESTORE_CASES = {
    "managed_to_managed": restore_manifests(store_with({"managed": {}}, "copy"), _MANAGED, "nightly", DEFAULTS),
    "volume_to_volume": restore_manifests(store_with({"volume": {"size": "5Gi"}}, "copy"), _VOLUME, "n", DEFAULTS),
    "s3_to_amazon": restore_manifests(_AMAZON, _ELSEWHERE, "nightly", DEFAULTS),
    "azure_to_gcs": restore_manifests(_GCS, _AZURE, "nightly", DEFAULTS),
    "clone_on_s3": clone_manifests(
        _ELSEWHERE, store_with({"s3": {**_S3, "prefix": "stores/first"}}, "first"), "nightly", DEFAULTS
    ),
}
