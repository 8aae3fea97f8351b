"""The custom resources, parsed and typed."""

from tussock.operator.resources.backup import StateStoreBackup, parse_backup
from tussock.operator.resources.client import StateStoreClient, parse_client
from tussock.operator.resources.common import API_VERSION, GROUP, VERSION, InvalidResource, Resource
from tussock.operator.resources.compactor import Compactor, parse_compactor
from tussock.operator.resources.compute import Compute, parse_compute
from tussock.operator.resources.meta import Meta, parse_meta
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "Compactor",
    "Compute",
    "InvalidResource",
    "Meta",
    "Resource",
    "StateStoreBackup",
    "StateStoreClient",
    "StoreResource",
    "parse_backup",
    "parse_client",
    "parse_compactor",
    "parse_compute",
    "parse_meta",
    "parse_store",
]
