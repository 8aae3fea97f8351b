"""What the plans of a `Compute` need to know beyond the objects of the API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.clients.grants import Admission
from tussock.operator.planning.words.facts import DriverFact, NodeFact
from tussock.operator.planning.words.model import Manifest, Ref

__all__ = ["PROGRAM_SECONDS", "ComputeFacts"]

PROGRAM_SECONDS = 10.0
"""The interval of looks at a program in a ConfigMap. Users' ConfigMaps are not watched: few of them are programs."""


@dataclass(frozen=True)
class ComputeFacts:
    """What is known of a job, or of a service, beyond the objects of the API."""

    defaults: Defaults = field(default_factory=Defaults)
    application: str | None = ""
    """Digest of the ConfigMap with the program; empty: a file of the image; `None`: not read yet."""
    missing: str = ""
    """A message if the program is missing; empty if nothing is missing."""
    driver: DriverFact | None = None
    """What the driver of a job reports; `None` if none runs."""
    settled: Mapping[Ref, bool] = field(default_factory=dict)
    """The store's Metas and Compactors, and whether each has rolled out its current spec."""
    certificate_due: bool = False
    """The operator issues its certificate, and has to make or renew it."""
    certificate_expires: str = ""
    """When its certificate ends (RFC 3339); empty if it has none, or one of the user's."""
    has_cert_manager: bool = False
    """Whether cert-manager is in the cluster."""
    before: Sequence[str] = ()
    """The jobs, or services, that an upgrade of the operator changes before this one (`turns.py`)."""
    admission: Admission = field(default_factory=lambda: Admission(None))
    """The store as the cluster has it, and what its nodes know of a job in another namespace."""
    elsewhere: Sequence[Manifest] = ()
    """The store's jobs in other namespaces than this one, as far as the store lets them in."""
    node: NodeFact | None = None
    """What the node of a service reports; `None` if none runs, or before its first answer."""
