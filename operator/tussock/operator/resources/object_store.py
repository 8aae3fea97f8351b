"""The place of a store's objects: one of five kinds, each with what is needed to reach it."""

from typing import Literal, TypeAlias

from msgspec import field

from tussock.operator.resources.common import CamelStruct, InvalidResource, PodTemplate, ResourceRequirements
from tussock.statestore.buckets.urls import BucketUrl

__all__ = [
    "MANAGED_BUCKET",
    "VOLUME_PATH",
    "AzureStore",
    "Backend",
    "GcsStore",
    "ManagedStore",
    "ObjectStoreSpec",
    "S3Credentials",
    "S3Store",
    "VolumeStore",
    "bucket_url",
]

MANAGED_BUCKET = "tussock"
"""The one bucket of a MinIO that the operator runs."""
VOLUME_PATH = "/var/lib/tussock/store"
"""Where the volume of a store of that kind is mounted, in every pod that opens the store."""


class S3Credentials(CamelStruct, frozen=True, kw_only=True):
    """A secret with a key pair."""

    name: str
    access_key_id_key: str = "access-key-id"
    secret_access_key_key: str = "secret-access-key"  # noqa: S105 - the name of a key


class S3Store(CamelStruct, frozen=True, kw_only=True):
    """A bucket of S3, or of a server that speaks its protocol."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    """Empty: Amazon's own, by region."""
    region: str = ""
    allow_http: bool = False
    credentials_secret: S3Credentials | None = None
    reader_credentials_secret: S3Credentials | None = None
    """The key pair that meta nodes hand to clients that may only read."""
    service_account: str = ""
    """Workload identity: pods run under this account instead of getting a key pair."""


class GcsCredentials(CamelStruct, frozen=True, kw_only=True):
    """A secret with the JSON key of a service account of Google Cloud."""

    name: str
    key: str = "credentials.json"


class GcsStore(CamelStruct, frozen=True, kw_only=True):
    """A bucket of Google Cloud Storage."""

    bucket: str
    prefix: str = ""
    credentials_secret: GcsCredentials | None = None
    service_account: str = ""


class AzureCredentials(CamelStruct, frozen=True, kw_only=True):
    """A secret with an access key of the storage account."""

    name: str
    key: str = "account-key"


class AzureStore(CamelStruct, frozen=True, kw_only=True):
    """A container of Azure Blob Storage."""

    container: str
    account: str
    prefix: str = ""
    credentials_secret: AzureCredentials | None = None
    service_account: str = ""


class VolumeStore(CamelStruct, frozen=True, kw_only=True):
    """A folder on a volume, for trials: the bucket is a folder that all pods of the store mount."""

    claim_name: str = ""
    """An existing claim; empty: the operator makes one of `size`."""
    size: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ("ReadWriteOnce",)


class ManagedStore(CamelStruct, frozen=True, kw_only=True):
    """A MinIO that the operator runs, one server with one disk."""

    size: str = "10Gi"
    storage_class_name: str | None = None
    ephemeral: bool = False
    """On an `emptyDir`: everything is gone with the pod."""
    image: str = ""
    resources: ResourceRequirements | None = None
    pod_template: PodTemplate = field(default_factory=dict)


Backend: TypeAlias = S3Store | GcsStore | AzureStore | VolumeStore | ManagedStore


class ObjectStoreSpec(CamelStruct, frozen=True, kw_only=True):
    """Exactly one of these."""

    s3: S3Store | None = None
    gcs: GcsStore | None = None
    azure: AzureStore | None = None
    volume: VolumeStore | None = None
    managed: ManagedStore | None = None

    @property
    def backend(self) -> Backend:
        """The one that is given; `InvalidResource` if none or several are."""
        ways: dict[Literal["s3", "gcs", "azure", "volume", "managed"], Backend | None] = {
            "s3": self.s3,
            "gcs": self.gcs,
            "azure": self.azure,
            "volume": self.volume,
            "managed": self.managed,
        }
        found = {name: backend for name, backend in ways.items() if backend is not None}
        if len(found) != 1:
            told = " and ".join(found) or "nothing"
            raise InvalidResource(f"objectStore holds {told}; give exactly one of {', '.join(ways)}")
        return next(iter(found.values()))


def bucket_url(store: ObjectStoreSpec) -> str:
    """The URL of the bucket for the platform's processes: `s3://bucket/prefix`, `file:///...` and so on."""
    where: BucketUrl
    match store.backend:
        case S3Store(bucket=bucket, prefix=prefix):
            where = BucketUrl("s3", bucket, prefix.strip("/"))
        case GcsStore(bucket=bucket, prefix=prefix):
            where = BucketUrl("gs", bucket, prefix.strip("/"))
        case AzureStore(container=container, prefix=prefix):
            where = BucketUrl("az", container, prefix.strip("/"))
        case VolumeStore():
            where = BucketUrl("file", "", VOLUME_PATH)
        case ManagedStore():
            where = BucketUrl("s3", MANAGED_BUCKET, "")
    return str(where)
