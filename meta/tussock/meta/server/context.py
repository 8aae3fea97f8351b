"""What all parts of a replica share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tussock.meta.meta_store import MetaStore
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import Role
from tussock.meta.server.settings.node_options import NodeOptions
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """The surroundings of a leadership."""

    meta: MetaStore
    bucket: ObjectStore
    """For the checks of uploads; counted apart."""
    system: System
    options: NodeOptions
    nudge: Callable[[], None]
    """Something may be due: tick now."""
    credentials: Callable[[Role, Sequence[str]], pb.GetCredentialsResponse] | None = None
    """Credentials of the bucket for a caller of these roles, and of the stores with these URLs to read from, where the
    service hands them out."""
    dismissal: Callable[[str], str] = lambda _: ""
    """Why sessions of an identity are to end; empty while they may go on."""
