"""A real Kafka broker for the tests: its jars by Maven, once; one node in KRaft mode on a free port."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from cluster.binaries import cache_folder
from support.buckets.minio import free_port

__all__ = ["KafkaBroker", "NoKafka", "find_jars"]

HERE = Path(__file__).resolve().parent
VERSION = "4.1.1"
FETCH_SECONDS_MAX = 600
START_SECONDS_MAX = 120
CALL_SECONDS = 30
_NO_LEADER_YET = (KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
CLUSTER = "dHVzc29jay1icm9rZXIxMg"


class NoKafka(Exception):
    """There is no broker here, and none can be had; the text says why."""


def find_jars() -> Path:
    """The folder of the broker's jars, which outlives clones; fetched by Maven if they are not there yet."""
    if not shutil.which("java"):
        raise NoKafka("no Java on the PATH, which runs the Kafka broker")
    folder = cache_folder() / f"kafka-{VERSION}"
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if not maven:
        raise NoKafka("no Maven (mvn) on the PATH, which fetches the jars of the Kafka broker")
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    # Maven writes beside its pom, which is not to change.
    shutil.copyfile(HERE / "pom.xml", part / "pom.xml")
    command = [maven, "-q", "-B", "-ntp", "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
    try:
        subprocess.run(
            [*command, "-DincludeScope=runtime"],
            cwd=part,
            check=True,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS_MAX,
        )
    except subprocess.CalledProcessError as error:
        raise NoKafka(f"Maven could not fetch the Kafka broker: {error.stdout.strip()[-600:]}") from error
    except subprocess.TimeoutExpired as error:
        raise NoKafka(f"Maven did not fetch the Kafka broker within {FETCH_SECONDS_MAX} s") from error
    wanted = dict(line.split()[::-1] for line in (HERE / "jars.sha256").read_text().splitlines())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in part.glob("*.jar")}
    if found != wanted:
        wrong = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
        raise NoKafka(f"jars of the Kafka broker are not those of jars.sha256: {wrong}")
    part.rename(folder)


class KafkaBroker:
    """One broker with its data in one folder."""

    def __init__(self, jars: Path, folder: Path) -> None:
        self.port = free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self._jars = jars
        self._folder = folder
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._client: AdminClient | None = None
        controller = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self._properties = folder / "server.properties"
        self._properties.write_text(
            "\n".join(
                (
                    "process.roles=broker,controller",
                    "node.id=1",
                    f"controller.quorum.voters=1@127.0.0.1:{controller}",
                    f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
                    f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}",
                    "controller.listener.names=CONTROLLER",
                    f"log.dirs={folder / 'data'}",
                    "auto.create.topics.enable=false",
                    "offsets.topic.replication.factor=1",
                    "offsets.topic.num.partitions=1",
                    "transaction.state.log.replication.factor=1",
                    "transaction.state.log.min.isr=1",
                    "transaction.state.log.num.partitions=1",
                    "group.initial.rebalance.delay.ms=0",
                    "log.retention.check.interval.ms=500",
                    # A broker that comes again is let in once its former session has ended.
                    "broker.session.timeout.ms=2000",
                    "broker.heartbeat.interval.ms=500",
                    "log.segment.delete.delay.ms=100",
                    "",
                )
            )
        )

    def start(self) -> None:
        """Start, also again on the same data after `kill`; returns when it answers."""
        if not (self._folder / "data").exists():
            command = ["format", "-t", CLUSTER, "-c", self._properties]
            subprocess.run(
                self._java("kafka.tools.StorageTool", *command),
                check=True,
                capture_output=True,
                timeout=CALL_SECONDS * 2,
            )
        self._client = None  # what it knows of leaders is outdated
        log = self._folder / "broker.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", self._properties), stdout=output, stderr=output, cwd=self._folder
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self._admin().list_topics(timeout=2)
                return
            except KafkaException:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    text = log.read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"the Kafka broker did not start: {text}") from None

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # --- Topics ------------------------------------------------------------------------------------------------------

    def topic(self, partitions: int = 1, name: str = "", **config: str) -> str:
        """A new topic."""
        name = name or f"topic-{next(self._numbers)}"
        self._admin().create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(CALL_SECONDS)
        self._wait_for(name, partitions)
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        """Until the topic has that many."""
        self._admin().create_partitions([NewPartitions(topic, total)])[topic].result(CALL_SECONDS)
        self._wait_for(topic, total)

    def _wait_for(self, topic: str, partitions: int) -> None:
        """The broker knows the controller's topics, and their leaders, a little later."""
        deadline = time.monotonic() + CALL_SECONDS
        while time.monotonic() < deadline:
            found = self._admin().list_topics(topic, timeout=CALL_SECONDS).topics[topic]
            leaders = [one.leader for one in found.partitions.values()]
            if found.error is None and len(leaders) == partitions and min(leaders) >= 0:
                return
        raise AssertionError(f"topic {topic} has no leaders")

    def drop(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self._admin().delete_topics([topic])[topic].result(CALL_SECONDS)
        deadline = time.monotonic() + CALL_SECONDS
        while time.monotonic() < deadline:
            found = self._admin().list_topics(topic, timeout=CALL_SECONDS).topics[topic].error
            if found is not None and found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
        raise AssertionError(f"topic {topic} is still there")

    def id_of(self, topic: str) -> str:
        """What tells it from another topic of its name."""
        found = self._admin().describe_topics(TopicCollection([topic]))[topic].result(CALL_SECONDS)
        return str(found.topic_id)

    def put(self, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
        """Messages, durable when this returns."""
        self.put_keyed(topic, ((None, value) for value in values), partition)

    def put_keyed(self, topic: str, messages: Iterable[tuple[bytes | None, bytes | None]], partition: int = 0) -> None:
        """The same of keys and values; without a value it is a tombstone."""
        failed: list[KafkaError] = []

        def note(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 1})
        for key, value in messages:
            producer.produce(topic, value, key, partition=partition, on_delivery=note)
        # What the broker refuses leaves the queue, too.
        assert not producer.flush(CALL_SECONDS)
        assert not failed, failed[0]

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        """What retention does: messages below an offset are gone."""
        place = TopicPartition(topic, partition, offset)
        self._admin().delete_records([place])[place].result(CALL_SECONDS)

    def ends(self, topic: str) -> dict[int, int]:
        """The end of each partition."""
        deadline = time.monotonic() + CALL_SECONDS
        while True:
            partitions = self._admin().list_topics(topic, timeout=CALL_SECONDS).topics[topic].partitions
            asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in partitions}
            found = self._admin().list_offsets(asked)
            try:
                return {place.partition: answer.result(CALL_SECONDS).offset for place, answer in found.items()}
            except KafkaException as error:
                # A broker that has just begun may tell of a leader before the leader knows it.
                if error.args[0].code() not in _NO_LEADER_YET or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def messages(self, topic: str) -> list[Message]:
        """All that a reader with `read_committed` gets now, by partition and offset."""
        left = {partition: end for partition, end in self.ends(topic).items() if end}
        if not left:
            return []
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        found: list[Message] = []
        deadline = time.monotonic() + CALL_SECONDS
        while left:
            assert time.monotonic() < deadline, f"{topic}: {left} not reached"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                # Behind it may be a transaction that is open; at the end of a crash there is one for a moment.
                if message.offset() >= left.get(message.partition(), 0):
                    left.pop(message.partition(), None)
            else:
                raise KafkaException(message.error())
        consumer.close()
        return sorted(found, key=lambda one: (one.partition(), one.offset()))

    # --- Within ------------------------------------------------------------------------------------------------------

    def _admin(self) -> AdminClient:
        # One for all: an answer that is waited for goes with its client.
        if self._client is None:
            self._client = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return self._client

    def _java(self, main: str, *arguments: object) -> list[str]:
        flags = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={self._folder}"]
        return [
            "nice",
            *(shutil.which("java") or "java", *flags),
            *("-cp", os.path.join(self._jars, "*"), main),
            *map(str, arguments),
        ]
