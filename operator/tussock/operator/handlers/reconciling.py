"""One pass over one resource: observe, plan, act, write the status.

It is called for every reason there is, and never told which: a change of the resource, of a child, of another resource
of the store, of a secret, a probe with another answer, a timer. So nothing depends on having heard of anything.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tussock.operator.cluster.acting import Actor
from tussock.operator.cluster.errors import ApiConflict, ApiNotFound, ApiRefused
from tussock.operator.cluster.kinds import FINALIZER
from tussock.operator.cluster.seen import Key, key_of
from tussock.operator.handlers.world import Controller, World
from tussock.operator.planning.comparing import APPLIED
from tussock.operator.planning.conditions import Reason, Verdict, conditions, is_ready, transitions, wrong
from tussock.operator.planning.model import Action, Apply, Emit, Hold, Manifest, Plan, Release, Work, ref_of
from tussock.operator.resources.common import InvalidResource
from tussock.statestore.logs import get_logger

__all__ = ["RESYNC_SECONDS", "Reconciler"]

log = get_logger("tussock.operator")

RESYNC_SECONDS = 60.0
"""Every resource is looked at at least so often, whatever the watches say."""
REFUSED_SECONDS = 30.0
"""What the API server refused is tried again so often: rights may be given, a quota raised."""


class Reconciler:
    """Makes passes, with the controllers of all kinds."""

    def __init__(self, world: World, controllers: Sequence[Controller[Any, Any]]) -> None:
        self._world = world
        self._actor = Actor(world.api, world.seen, world.system, world.identity)
        self._controllers = {controller.kind: controller for controller in controllers}

    async def run(self, key: Key) -> float | None:
        """One pass; answers in how many seconds the next one is due, `None` if the resource is gone."""
        body = self._world.seen.get(*key)
        controller = self._controllers.get(key.kind)
        if body is None or controller is None:
            return None
        resource = None
        try:
            resource = controller.parse(body)
            plan = controller.plan(resource, controller.observe(self._world, resource, body), self._world.now())
        except InvalidResource as error:
            if body["metadata"].get("deletionTimestamp"):
                # What cannot be understood cannot be cleaned up after, and must not stay for ever.
                await self._actor.act(body, Release())
                return None
            plan = self._failed(body, wrong(Reason.INVALID_SPEC, str(error)))
        try:
            if await self._act(controller, resource, body, plan):
                return None
        except ApiRefused as error:
            refusal = wrong(
                Reason.APPLY_REFUSED,
                f"The API server refused a request: {error}. If rights are missing, give them to the operator's role.",
                serving=is_ready(body),
            )
            plan = self._failed(body, refusal, plan)
        except ApiConflict as error:
            log.info("somebody else was faster; looking again", error=str(error))
            return 1.0
        await self._report(body, plan)
        again = RESYNC_SECONDS if plan.again_seconds is None else min(plan.again_seconds, RESYNC_SECONDS)
        return again if self._world.seen.get(*key) is not None else None

    def _failed(self, body: Manifest, verdict: Verdict, plan: Plan | None = None) -> Plan:
        """A plan of which nothing can be done but to say so."""
        status = dict(plan.status if plan is not None else body.get("status") or {})
        generation = body["metadata"].get("generation", 0)
        old = (body.get("status") or {}).get("conditions") or ()
        status["observedGeneration"] = generation
        status["conditions"] = conditions(old, verdict, generation, self._world.now())
        return Plan((), status, REFUSED_SECONDS)

    async def _act(self, controller: Controller[Any, Any], resource: Any, body: Manifest, plan: Plan) -> bool:
        """Carry the plan out; whether the resource was let go."""
        held = FINALIZER in (body["metadata"].get("finalizers") or [])
        restored = self._restored(body, plan.actions)
        for action in plan.actions:
            match action:
                case Work(name, arguments):
                    await controller.works[name](self._world, resource, arguments)
                case Hold() if held or body["metadata"].get("deletionTimestamp"):
                    continue
                case Release() if not held:
                    continue
                case Release():
                    # With the finalizer the resource goes, and there is no status to write after that.
                    await self._report(body, plan)
                    await self._actor.act(self._world.seen.get(*key_of(body)) or body, action)
                    return True
                case _:
                    await self._actor.act(body, action)
        if restored:
            await self._actor.act(body, restored)
        return False

    def _restored(self, body: Manifest, actions: Sequence[Action]) -> Emit | None:
        """The event about children that are put right although nobody changed the resource."""
        if not is_ready(body):
            return None
        told = []
        for action in actions:
            # Without the mark it is nothing lasting, such as the pod that tries an image.
            if not isinstance(action, Apply) or _digest(action.manifest) is None:
                continue
            ref = ref_of(action.manifest)
            known = self._world.seen.get(ref.kind, body["metadata"]["namespace"], ref.name)
            if known is None:
                told.append(f"{ref.kind} {ref.name} was missing")
            elif _digest(known) == _digest(action.manifest):
                # We wanted the same before: somebody else has edited it.
                told.append(f"{ref.kind} {ref.name} was edited")
        return Emit("Normal", "ChildRestored", f"Put right: {', '.join(told)}.") if told else None

    async def _report(self, body: Manifest, plan: Plan) -> None:
        """Write the status if it differs, then the event of its transition: an event that is lost is in the status."""
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


def _digest(body: Manifest) -> str | None:
    return (body["metadata"].get("annotations") or {}).get(APPLIED)
