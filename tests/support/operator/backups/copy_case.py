"""A `StateStoreBackup` with a destination, as its plans see it, and the pod that copies for it."""

from typing import Any

from support.operator.computes import DEFAULTS, NOW, at, body, store
from tussock.operator.planning.backup import BackupFacts, backup_name, plan_backup
from tussock.operator.planning.words.facts import BackupsFact, HeldBackup
from tussock.operator.planning.words.model import Apply, Delete, Manifest, Observed, Plan, Ref, Work, ref_of
from tussock.operator.resources.backup import parse_backup
from tussock.operator.resources.store import parse_store

__all__ = ["CONFIG", "ELSEWHERE", "POD", "SECRET", "CopyCase"]

POD, CONFIG = Ref("Pod", "nightly-backup"), Ref("ConfigMap", "nightly-backup")
ELSEWHERE = {
    "s3": {"bucket": "elsewhere", "prefix": "shop", "endpoint": "https://far", "credentialsSecret": {"name": "k"}}
}
SECRET = {
    "kind": "Secret",
    "metadata": {"name": "k"},
    "data": {"access-key-id": "", "secret-access-key": ""},
}
MINIO = {**SECRET, "metadata": {"name": "s-minio"}}


class CopyCase:
    """A `StateStoreBackup` with its store, its pod and what the store holds; `now` moves."""

    def __init__(self, **spec: Any) -> None:
        spec.setdefault("destination", ELSEWHERE)
        self.body = body(
            "StateStoreBackup", "nightly", {"storeRef": {"name": "s"}, **spec}, creationTimestamp=at(-3600)
        )
        self.body["status"] = {}
        self.others: dict[Ref, Manifest] = {
            Ref("StateStore", "s"): store(),
            Ref("Secret", "k"): SECRET,
            Ref("Secret", "s-minio"): MINIO,
        }
        self.children: dict[Ref, Manifest] = {}
        self.held: list[HeldBackup] | None = []
        self.dropped: list[str] = []
        self.now = NOW
        self.defaults = DEFAULTS

    def plan(self) -> Plan:
        found = self.others.get(Ref("StateStore", "s"))
        tended = None if self.held is None else BackupsFact(tuple(self.held))
        facts = BackupFacts(parse_store(found) if found else None, found is not None, tended, self.defaults)
        return plan_backup(parse_backup(self.body), Observed(facts, self.children, self.others), self.now)

    def pass_(self, *, until: int | None = None) -> Plan:
        """One pass; it ends after `until` actions, and before the status, if the operator dies there."""
        plan = self.plan()
        for action in plan.actions[:until]:
            if isinstance(action, Apply):
                self.children[ref_of(action.manifest)] = {**action.manifest}
            elif isinstance(action, Delete):
                del self.children[action.ref]
            elif isinstance(action, Work) and self.held is not None:
                drops = action.arguments["drop"]
                self.dropped += drops
                self.held = [one for one in self.held if one.name not in drops]
                for name, id_, _ in action.arguments["make"]:
                    self.held.append(HeldBackup(name, id_, 7, 1000, int(self.now.timestamp() * 1000)))
        for child in self.children.values():
            references = child["metadata"].get("ownerReferences", ())
            assert [one["uid"] for one in references] == ["StateStoreBackup-nightly"]
        if until is None:
            self.body["status"] = plan.status
        return plan

    def settle(self) -> Plan:
        """Passes until nothing changes, or a pod is to be waited for."""
        for _ in range(12):
            before = (dict(self.body["status"]), dict(self.children))
            plan = self.pass_()
            if (self.body["status"], self.children) == before:
                return plan
        raise AssertionError("it never comes to rest")

    def pod_is(self, phase: str, **status: Any) -> None:
        self.children[POD]["status"] = {"phase": phase, **status}

    def succeed(self, at_time: str = at(60)) -> Plan:
        """The pod has ended well, and the operator has seen it."""
        ended = {"terminated": {"exitCode": 0, "finishedAt": at_time}}
        self.pod_is("Succeeded", containerStatuses=[{"name": "backup", "state": ended}])
        return self.settle()

    @property
    def arguments(self) -> list[str]:
        return list(self.children[POD]["spec"]["containers"][0]["args"])

    def copied(self) -> dict[str, Any]:
        return {one["name"]: one.get("copied") for one in self.body["status"]["backups"]}

    def name(self) -> str:
        return backup_name(parse_backup(self.body), None)
