"""All kinds of resources that the operator reconciles."""

from typing import Any

from tussock.operator.handlers.backup import STATE_STORE_BACKUP
from tussock.operator.handlers.clients.client import STATE_STORE_CLIENT
from tussock.operator.handlers.components import COMPACTOR, META
from tussock.operator.handlers.compute import COMPUTE
from tussock.operator.handlers.store import STATE_STORE
from tussock.operator.handlers.world import Controller

__all__ = ["CONTROLLERS"]

CONTROLLERS: tuple[Controller[Any, Any], ...] = (
    STATE_STORE,
    META,
    COMPACTOR,
    COMPUTE,
    STATE_STORE_BACKUP,
    STATE_STORE_CLIENT,
)
