"""A broker of Kafka for the session, and stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.feeds.broker import KafkaBroker, NoKafka, find_jars
from tussock.statestore import StateStore, connect


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running broker; a test that kills it starts it again."""
    try:
        jars = find_jars()
    except NoKafka as error:
        pytest.skip(str(error))
    broker = KafkaBroker(jars, tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened
