"""One pass over one resource: observe, plan, act, write the status.

Every reason leads here, and none is passed on: a change of the resource, of a child, of another resource of the store,
of a secret, a probe with a new answer, a timer. So nothing depends on the operator having seen a particular event.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from tussock.operator.cluster.actions import Actor
from tussock.operator.cluster.errors import (
    ApiConflict,
    ApiError,
    ApiNotFound,
    ApiRefused,
    NameInUse,
    TemplateFieldsUnknown,
)
from tussock.operator.cluster.kinds import FINALIZER
from tussock.operator.cluster.seen import Key, key_of
from tussock.operator.handlers.passes.queue import backoff_seconds
from tussock.operator.handlers.passes.refusals import Refusals, refusal_summary
from tussock.operator.handlers.world import Controller, World
from tussock.operator.manifests.labels import SPEC_ANNOTATION
from tussock.operator.planning.words.comparison import APPLIED
from tussock.operator.planning.words.conditions import (
    Reason,
    Verdict,
    conditions,
    is_ready,
    is_serving,
    known_reason,
    problem_verdict,
    progress_verdict,
    transitions,
)
from tussock.operator.planning.words.model import (
    RUN_PODS,
    Action,
    Annotate,
    Apply,
    Delete,
    Emit,
    Hold,
    Label,
    Manifest,
    Plan,
    Ref,
    Release,
    Work,
    ref_of,
)
from tussock.operator.planning.words.ownership import uses
from tussock.operator.probes.redaction import place_of
from tussock.operator.resources.common import InvalidResource
from tussock.statestore.base.logs import get_logger

__all__ = ["RESYNC_SECONDS", "Reconciler"]

log = get_logger("tussock.operator")

RESYNC_SECONDS = 60.0
"""Every resource is looked at this often at least, even without events."""
CONFLICTS_TOLD = 3
"""Conflicts in a row from which on the status tells of them: one or two happen whenever others write, too."""


class Reconciler:
    """Makes passes, with the controllers of all kinds."""

    def __init__(self, world: World, controllers: Sequence[Controller[Any, Any]]) -> None:
        self._world = world
        self._actor = Actor(world.api, world.seen, world.system, world.identity)
        self._controllers = {controller.kind: controller for controller in controllers}
        self._refusals = Refusals()
        self._conflicts: dict[Key, int] = {}
        """Passes in a row that ended with a conflict, by resource."""

    async def run(self, key: Key) -> float | None:
        """One pass; returns the seconds until the next one is due, `None` if the resource is gone.

        Tells in the status of an error that nobody foresaw, and raises it: users do not read the operator's log.
        """
        try:
            return await self._run(key)
        except ApiError:
            raise
        except Exception as error:
            await self._tell_failure(key, error)
            raise

    async def _run(self, key: Key) -> float | None:
        body = self._world.seen.get(*key)
        controller = self._controllers.get(key.kind)
        if body is None or controller is None:
            self._refusals.keep(key, ())
            self._conflicts.pop(key, None)
            return None
        resource = None
        try:
            resource = controller.parse(body)
            plan = controller.plan(resource, controller.observe(self._world, resource, body), self._world.now())
        except InvalidResource as error:
            if body["metadata"].get("deletionTimestamp"):
                # Nothing can be cleaned up for an invalid resource, and it must not stay for ever.
                await self._actor.act(body, Release())
                return None
            plan = self._status_plan(
                body, dict(body.get("status") or {}), problem_verdict(Reason.INVALID_SPEC, str(error))
            )
        try:
            let_go, refused = await self._act(controller, resource, body, plan)
        except ApiConflict as error:
            return await self._note_conflict(key, body, plan, error)
        self._conflicts.pop(key, None)
        self._refusals.keep(key, tuple(action for action, _ in refused))
        if let_go:
            return None
        if refused:
            plan = self._refusal_plan(body, plan, [error for _, error in refused])
        await self._report(body, plan)
        due = [RESYNC_SECONDS, plan.again_seconds, self._refusals.wait_seconds(key, self._now())]
        again = min(seconds for seconds in due if seconds is not None)
        return again if self._world.seen.get(*key) is not None else None

    async def _tell_failure(self, key: Key, error: Exception) -> None:
        body = self._world.seen.get(*key)
        if body is None:
            return
        told = (
            f"The operator cannot look after this {key.kind}: an error that it does not know, {place_of(error)}. What "
            "runs goes on, and the operator tries again at each change, and at least once a minute. Its log has the "
            f'error, under "a pass failed" and {key.namespace}/{key.name}: report it, with the YAML of this object.'
        )
        verdict = problem_verdict(Reason.OPERATOR_FAILED, told, serving=is_serving(body))
        with contextlib.suppress(ApiError):  # the log has it anyway
            await self._report(body, self._status_plan(body, dict(body.get("status") or {}), verdict))

    async def _note_conflict(self, key: Key, body: Manifest, plan: Plan, error: ApiConflict) -> float:
        """Returns the pause, which doubles: a conflict that lasts is no other client's, and a person has to see it."""
        times = self._conflicts[key] = self._conflicts.get(key, 0) + 1
        pause = backoff_seconds(times)
        log.info("another client changed the object first; the pass will be repeated", seconds=pause, error=str(error))
        if times >= CONFLICTS_TOLD:
            with contextlib.suppress(ApiConflict):  # perhaps it is the status that cannot be written
                await self._report(body, self._refusal_plan(body, plan, [ApiRefused(str(error), error.status)]))
        return pause

    def _now(self) -> float:
        return self._world.system.monotonic()

    def _status_plan(self, body: Manifest, status: dict[str, Any], verdict: Verdict) -> Plan:
        """A plan that does nothing but set the status."""
        generation = body["metadata"].get("generation", 0)
        old = (body.get("status") or {}).get("conditions") or ()
        status["observedGeneration"] = generation
        status["conditions"] = conditions(old, verdict, generation, self._world.now())
        return Plan((), status)

    def _refusal_plan(self, body: Manifest, plan: Plan, errors: Sequence[ApiRefused]) -> Plan:
        """The plan with the refusals in its status. Another problem stays the reason and comes first in the message."""
        held = {found["type"]: found for found in plan.status.get("conditions") or ()}
        reason, told = refusal_summary(errors)
        is_serving = bool(held) and held["Ready"]["status"] == "True"
        if held and held["Degraded"]["status"] == "True":
            reason = known_reason(held["Ready"]["reason"], reason)
            told = f"{held['Ready']['message']} Besides: {told}"
        verdict = problem_verdict(reason, told, serving=is_serving)
        if reason is Reason.RECONCILING:
            verdict = progress_verdict(reason, told, serving=is_serving)
        return self._status_plan(body, dict(plan.status), verdict)._replace(again_seconds=plan.again_seconds)

    async def _act(
        self, controller: Controller[Any, Any], resource: Any, body: Manifest, plan: Plan
    ) -> tuple[bool, list[tuple[Action, ApiRefused]]]:
        """Carry the plan out; returns whether the resource was released, and the server's refusals.

        A refusal stops only what depends on it: without our finalizer nothing is made; while a ConfigMap is refused,
        workloads stay as they are, since they would run with the old one and count as changed; and children that would
        use a foreign object with the name of a child are not made either. While a workload stays as it was made, so
        does the object that says from which specs: a user's change would count as an upgrade's (`planning/turns.py`).
        """
        key, held = key_of(body), FINALIZER in (body["metadata"].get("finalizers") or [])
        refused: list[tuple[Action, ApiRefused]] = []
        kinds: set[str] = set()
        foreign: list[Ref] = []
        restored: list[str] = []
        is_stale = False
        for action in plan.actions:
            runs_pods = _kind_of(action) in RUN_PODS
            if isinstance(action, Emit) and refused:
                continue  # its event reports an action that was not possible
            if ("ConfigMap" in kinds and runs_pods) or (
                isinstance(action, Apply) and any(uses(action.manifest, ref) for ref in foreign)
            ):
                is_stale |= runs_pods
                continue
            if is_stale and not runs_pods and _dates_workload(action):
                continue
            error, told = self._refusals.refusal_of(key, action, self._now()), self._repair(body, action)
            try:
                if error is None and await self._do(controller, resource, body, action, plan, held=held):
                    return True, []
            except ApiRefused as refusal:
                self._refusals.note(key, action, refusal, self._now())
                error = refusal
            if error is None:
                restored += [told] if told else []
                continue
            refused.append((action, error))
            kinds.add(_kind_of(action))
            # With a field that the server does not know all else of the workload is as wanted.
            is_stale |= runs_pods and not isinstance(error, TemplateFieldsUnknown)
            foreign += [error.ref] if isinstance(error, NameInUse) else []
            if isinstance(action, Hold):
                break
        if restored:
            await self._actor.act(body, Emit("Normal", "ChildRestored", f"Restored: {', '.join(restored)}."))
        return False, refused

    async def _do(
        self, controller: Controller[Any, Any], resource: Any, body: Manifest, action: Action, plan: Plan, *, held: bool
    ) -> bool:
        """Carry out one action; returns whether the resource was released."""
        match action:
            case Work(name, arguments):
                await controller.works[name](self._world, resource, arguments)
            case Hold() if held or body["metadata"].get("deletionTimestamp"):
                pass
            case Release() if not held:
                pass
            case Release():
                # Without the finalizer the resource goes, and there is no status to write after that.
                await self._report(body, plan)
                await self._actor.act(self._world.seen.get(*key_of(body)) or body, action)
                return True
            case _:
                await self._actor.act(body, action)
        return False

    def _repair(self, body: Manifest, action: Action) -> str:
        """What an apply repairs although the resource has not changed; empty if it repairs nothing."""
        # A child without the mark does not last, such as the pod that tries an image.
        if not is_ready(body) or not isinstance(action, Apply) or _digest(action.manifest) is None:
            return ""
        ref = ref_of(action.manifest)
        known = self._world.seen.get(ref.kind, body["metadata"]["namespace"], ref.name)
        if known is None:
            return f"{ref.kind} {ref.name} was missing"
        # The operator wanted the same before: another client has edited it.
        return f"{ref.kind} {ref.name} was edited" if _digest(known) == _digest(action.manifest) else ""

    async def _report(self, body: Manifest, plan: Plan) -> None:
        """Write the status if it differs, then the event of its transition: a lost event is still in the status."""
        body = self._world.seen.get(*key_of(body)) or body
        before: Mapping[str, Any] = body.get("status") or {}
        if before == plan.status or not plan.status:
            return
        try:
            await self._actor.write_status(body, plan.status)
        except ApiNotFound:
            return
        for emit in transitions(before.get("conditions") or (), plan.status.get("conditions") or ()):
            await self._actor.act(body, emit)


def _kind_of(action: Action) -> str:
    """The kind of object that an action is about; empty if it is only about the resource."""
    match action:
        case Apply(manifest):
            return str(manifest["kind"])
        case Delete(ref) | Annotate(ref, _) | Label(ref, _):
            return ref.kind
    return ""


def _dates_workload(action: Action) -> bool:
    """Whether an action writes from which specs a workload was made."""
    return isinstance(action, Apply) and SPEC_ANNOTATION in (action.manifest["metadata"].get("annotations") or {})


def _digest(body: Manifest) -> str | None:
    return (body["metadata"].get("annotations") or {}).get(APPLIED)
