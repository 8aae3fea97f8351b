"""Transactional functions: entities that call each other, each request one serializable transaction."""

from tussock.compute.applications.errors import ApplicationFenced, ApplicationStopped, Full, NotDeterministic
from tussock.compute.functions.batches.batch import FunctionBatch
from tussock.compute.functions.errors import FunctionFault, TransactionAborted
from tussock.compute.functions.program.context import FunctionContext
from tussock.compute.functions.program.operators import Operator
from tussock.compute.functions.runtime import Runtime

__all__ = [
    "ApplicationFenced",
    "ApplicationStopped",
    "Full",
    "FunctionBatch",
    "FunctionContext",
    "FunctionFault",
    "NotDeterministic",
    "Operator",
    "Runtime",
    "TransactionAborted",
]
