"""Copies with a retention of their destination's: longer or shorter than that of their backups, and never the last."""

from datetime import timedelta
from typing import Any

import pytest

from support.operator.backups.copy_case import ELSEWHERE, POD, CopyCase
from tussock.operator.manifests.backup.copy import own_prefix
from tussock.operator.resources.backup import parse_backup


def schedule(*, copies: dict[str, Any], **spec: Any) -> CopyCase:
    return CopyCase(schedule="*/10 * * * *", destination={**ELSEWHERE, "retention": copies}, **spec)


def names_after(case: CopyCase, option: str) -> list[str]:
    """What follows an option in the pod's command."""
    return [one for at, one in enumerate(case.arguments) if at and case.arguments[at - 1] == option]


def next_backup(case: CopyCase) -> str:
    """The schedule is due, and the backup is copied; returns its name."""
    case.settle()
    name = case.arguments[2]
    case.succeed()
    case.now += timedelta(minutes=10)
    return name


def test_copies_outlive_their_backups() -> None:
    """The store keeps two, the destination thirty: backups go, and no copy of them is asked to be deleted by name."""
    case = schedule(copies={"count": 30}, retention={"count": 2})
    made = []
    for _ in range(5):
        made.append(next_backup(case))
        assert case.held is not None
        assert len(case.held) <= 3
    case.settle()
    assert names_after(case, "--delete") == []
    assert case.dropped == made[:4]
    assert names_after(case, "--keep-count") == ["30"]
    assert names_after(case, "--keep-seconds") == []
    [prefix] = names_after(case, "--keep-of")
    assert prefix == own_prefix(parse_backup(case.body))
    assert all(name.startswith(prefix) for name in made)


def test_copies_may_go_before_their_backups() -> None:
    """One that is gone is not copied again, and the status says so of it."""
    case = schedule(copies={"count": 1})
    first = next_backup(case)
    case.settle()
    second = case.arguments[2]
    assert names_after(case, "--delete") == [first]
    case.succeed()
    assert case.copied() == {first: False, second: True}
    assert POD not in case.children
    assert case.dropped == []


def test_both_rules_are_the_pods() -> None:
    case = schedule(copies={"count": 3, "seconds": 86400})
    case.settle()
    assert (names_after(case, "--keep-count"), names_after(case, "--keep-seconds")) == (["3"], ["86400"])


def test_a_backup_stays_until_it_is_copied() -> None:
    """The destination was away, and the store's retention went on: nothing is missing there afterwards."""
    case = schedule(copies={"seconds": 86400}, retention={"count": 1})
    case.settle()
    for _ in range(3):
        case.pod_is("Pending")
        case.now += timedelta(minutes=10)
        case.settle()
    case.now -= timedelta(minutes=10)
    assert case.held is not None
    names = [one.name for one in case.held]
    assert (len(names), case.dropped) == (4, [])
    made = []
    for _ in range(4):
        made.append(case.arguments[2])
        case.succeed()
    assert made == [names[0], names[3], names[2], names[1]], "what had begun, then the newest first"
    case.settle()
    assert sorted(case.dropped) == names[:3]
    assert case.copied() == {names[3]: True}


def test_what_the_destination_would_not_keep_is_not_waited_for() -> None:
    case = schedule(copies={"count": 1}, retention={"count": 1})
    case.settle()
    first = case.arguments[2]
    case.pod_is("Pending")
    case.now += timedelta(minutes=10)
    case.settle()
    assert (case.arguments[2], case.dropped) == (first, []), "its copy is on its way"
    case.now += timedelta(minutes=10)
    case.settle()
    assert case.held is not None
    assert len(case.held) == 2
    assert first in {one.name for one in case.held}
    assert len(case.dropped) == 1


def test_a_drill_comes_before_anything_is_deleted() -> None:
    """The pod deletes what a rule does not keep once it has read its own copy, so a whole one is always there."""
    case = schedule(copies={"count": 1}, verify=True)
    next_backup(case)
    case.settle()
    assert "--verify" in case.arguments
    assert names_after(case, "--keep-count") == ["1"]


def test_a_rule_that_changes_makes_another_pod() -> None:
    case = schedule(copies={"count": 5})
    case.settle()
    case.pod_is("Running")
    case.body["spec"]["destination"] = {**ELSEWHERE, "retention": {"count": 9}}
    case.settle()
    assert names_after(case, "--keep-count") == ["9"]


@pytest.mark.parametrize("until", [0, 1, 2, 3])
def test_a_crash_at_any_action_keeps_what_is_to_be_kept(until: int) -> None:
    """The operator dies after some actions of a pass, before its status, again and again; then it goes on."""
    case = schedule(copies={"count": 2}, retention={"count": 1})
    for _ in range(3):
        for _ in range(4):
            case.pass_(until=until)
        case.settle()
        case.pod_is("Succeeded", containerStatuses=[{"name": "backup", "state": {"terminated": {"exitCode": 0}}}])
        case.pass_(until=until)
        case.settle()
        case.now += timedelta(minutes=10)
    assert case.held is not None
    assert (len(case.held), len(case.dropped), case.children) == (1, 2, {})
    assert list(case.copied().values()) == [True]
