"""Certificates that end soon, or have ended, are told of with their file and the time."""

from pathlib import Path

import pytest

from support.network.certificates import Authority
from tussock.meta.node.auth.expiry import LOOK_SECONDS, CertificateWatch
from tussock.statestore.base.system import RealSystem

HOURS = 3600


class LaterSystem(RealSystem):
    """Some seconds from now."""

    later = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.later * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self.later


@pytest.mark.parametrize(
    ("hours", "told"),
    [(1, []), (39, []), (41, ["ends: "]), (47, ["ends: "]), (49, ["has ended, and nobody takes it any more: "])],
)
def test_a_certificate_of_two_days_ends_soon_in_its_last_eight_hours(
    tmp_path: Path, hours: int, told: list[str]
) -> None:
    pair = Authority(tmp_path).sign("node")
    system = LaterSystem()
    watch = CertificateWatch([str(pair.certificate), "", str(tmp_path / "none.pem")], system)
    assert watch.ending() == []
    system.later = hours * HOURS
    found = watch.ending()
    assert [
        one.text.removeprefix(f"{pair.certificate} ")[: len(text)] for one, text in zip(found, told, strict=False)
    ] == told
    assert len(found) == len(told)
    assert all(one.since_ms <= system.now_ms() for one in found)


def test_a_renewed_file_is_read_again(tmp_path: Path) -> None:
    """And of each certificate of a file it is told which one it is; what is none is passed over."""
    authority, system = Authority(tmp_path), LaterSystem()
    bundle = tmp_path / "bundle.pem"
    one = authority.sign("one").certificate.read_text()
    damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    bundle.write_text(f"words\n{one}{damaged}{one}")
    watch = CertificateWatch([str(bundle)], system)
    system.later = 50 * HOURS
    assert [found.text.partition(" has")[0] for found in watch.ending()] == [
        f"{bundle}, certificate 1",
        f"{bundle}, certificate 3",
    ]
    bundle.write_text(damaged)
    assert len(watch.ending()) == 2, "it is looked at once a minute"
    system.later += LOOK_SECONDS
    assert watch.ending() == []
