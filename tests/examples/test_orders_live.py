"""`examples/orders_live`: orders, shipments and payments through a real broker, shown live, right at each epoch."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.feeds.broker import KafkaBroker, NoKafka, find_jars

pytestmark = [pytest.mark.long, pytest.mark.slow]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    try:
        jars = find_jars()
    except NoKafka as error:
        pytest.skip(str(error))
    found = KafkaBroker(jars, tmp_path_factory.mktemp("kafka"))
    try:
        found.start()
        yield found
    finally:
        found.kill()


@pytest.mark.timeout(300)
def test_the_demo_ends_with_all_epochs_right(broker: KafkaBroker, tmp_path: Path) -> None:
    """Late and corrected rows, deletes and repeated messages included."""
    for name in ("orders", "shipments", "payments"):
        broker.topic(name=name)
    command = [
        sys.executable,
        str(EXAMPLES / "orders_live/demo.py"),
        "--changes",
        "8000",
        "--store",
        str(tmp_path / "s"),
    ]
    environment = {**os.environ, "ORDERS_KAFKA": broker.servers}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("The page is at http://127.0.0.1:")
    assert "committed epochs are what Polars makes of the sources" in lines[-1]
    assert int(lines[-1].split()[0]) >= 2
