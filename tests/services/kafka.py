"""Kafka broker for tests: one KRaft process on free loopback ports, with its data in a temporary directory.

Run as a script, this module starts a broker, prints its address, and stops it when standard input ends or on an
interrupt.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from airflow_provider_ckpt.spark.driver.parent_death import killed_with_caller
from tests.services.processes import pause
from tests.services.proxy import Proxy

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, NewTopic

VERSION = "4.1.0"
USER = "ckpt"
PASSWORD = "ckpt-test"
"""Password of the user of the listener that asks for SASL; the plain one takes anybody."""

_STALL_SECONDS = 60.0
"""Time for which the broker of a busy machine may not answer before a test fails."""

_CLUSTER = "Y2twdC10ZXN0cy1rYWZrYQ"
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        f'{_LOGIN} required username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
    ),
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    # What a broker does now and then happens soon here, so that a test need not wait for it; sooner still, brokers that
    # nobody uses would take a tenth of the time of all tests.
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "metadata.max.idle.interval.ms": "0",
    "message.max.bytes": str(32 << 20),
    "replica.fetch.max.bytes": str(32 << 20),
}


def jars(name: str = f"kafka-{VERSION}") -> Path:
    """A directory of jars, the broker's by default.

    :param name: as jars.sh called it
    :raises RuntimeError: if they were not fetched; says how
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    found = Path(cache) / "airflow-provider-ckpt" / name
    if not found.is_dir():
        raise RuntimeError(f"the jars {name} are not in {found}: run tests/services/jars.sh {name.rpartition('-')[0]}")
    return found


def _free_ports(number: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


class KafkaBroker:
    """One broker, which keeps its data and ports from :meth:`start` to :meth:`start`, and loses them in :meth:`remove`.

    It dies when the thread that started it ends, so start it from the main thread.

    :param settings: further lines of server.properties
    :param jvm: further options of its JVM, behind the ones it has by default
    :param proxy: stands before the plain listener: clients are told its port and never see the broker's own
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, jvm: tuple[str, ...] = (), proxy: Proxy | None = None
    ) -> None:
        self._proxy = proxy
        self._settings = {**_SETTINGS, **(settings or {})}
        self._jvm = (*_JVM, *jvm)
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._topics = 0
        self._ports = [0, 0, 0]

    @property
    def bootstrap(self) -> str:
        """``host:port`` of the listener that takes anybody."""
        return f"127.0.0.1:{self._proxy.port if self._proxy else self._ports[0]}"

    @property
    def sasl_bootstrap(self) -> str:
        """``host:port`` of the listener that asks for :data:`USER` and :data:`PASSWORD` by SASL PLAIN."""
        return f"127.0.0.1:{self._ports[2]}"

    @property
    def log(self) -> str:
        """Return the broker's output so far."""
        return (self._home / "log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The broker's process."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def _home(self) -> Path:
        if self._directory is None:
            raise RuntimeError("the broker was not started")
        return self._directory

    def start(self) -> Self:
        """Make the data directory if there is none yet, start the broker and wait until it answers."""
        if self._directory is None:
            self._format()
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                killed_with_caller([*map(str, self._java()), "kafka.Kafka", str(self._home / "server.properties")]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._home,
            )
        self._wait()
        return self

    def stop(self) -> None:
        """End the broker in good order; its data stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker as a crash would; its data stays as it is."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let the broker hold still: its connections stay open, and nothing is answered."""
        pause(self.pid)

    def resume(self) -> None:
        """Let a paused broker go on."""
        os.kill(self.pid, signal.SIGCONT)

    def remove(self) -> None:
        """End the broker and forget its data."""
        self.kill()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def admin(self) -> AdminClient:
        """A client that makes and alters topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    def new_topic(self, partitions: int = 1, config: Mapping[str, str] | None = None, *, name: str = "") -> str:
        """Create a topic and return its name.

        :param name: its name; one that no other has by default
        """
        from confluent_kafka.admin import NewTopic

        self._topics += 1
        name = name or f"topic-{self._topics}"
        admin = self.admin()
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        _until(lambda: _create(admin, topic), f"topic {name} could not be created: the broker stayed fenced", 60)
        # Made is not yet known everywhere: a client may still be told that there is no such topic, or no leader.
        _until(lambda: _has_leaders(admin, name), f"topic {name} did not appear")
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no client sees it any more."""
        admin = self.admin()
        admin.delete_topics([name])[name].result(30)
        _until(lambda: name not in admin.list_topics(timeout=_STALL_SECONDS).topics, f"topic {name} did not go")

    def copy_log(self, topic: str, to: Path, partition: int = 0) -> None:
        """Copy a partition's log as it is on disk; the broker must be stopped."""
        shutil.copytree(self._log_of(topic, partition), to, dirs_exist_ok=True)

    def lose_log(self, topic: str, copy: Path | None = None, partition: int = 0) -> None:
        """Lose a partition's log, or all of it that an older copy does not hold, as a broker that lost its disk does;
        the broker must be stopped.
        """
        shutil.rmtree(self._log_of(topic, partition))
        if copy is not None:
            shutil.copytree(copy, self._log_of(topic, partition))

    def damage_log(self, topic: str, text: bytes, partition: int = 0) -> None:
        """Flip a bit in the one place of a partition's log that holds a text; the broker must be stopped."""
        (segment,) = (found for found in self._log_of(topic, partition).glob("*.log") if text in found.read_bytes())
        content = bytearray(segment.read_bytes())
        content[content.index(text)] ^= 1
        segment.write_bytes(content)

    def copy_all(self, to: Path) -> None:
        """Copy all that the broker keeps, its metadata included; it must be stopped."""
        shutil.copytree(self._home / "data", to)

    def restore_all(self, copy: Path) -> None:
        """Put back all that :meth:`copy_all` copied and nothing else; the broker must be stopped."""
        shutil.rmtree(self._home / "data")
        shutil.copytree(copy, self._home / "data")

    def _log_of(self, topic: str, partition: int) -> Path:
        return self._home / "data" / f"{topic}-{partition}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()

    def _java(self) -> list[str | Path]:
        home = os.environ.get("JAVA_HOME")
        return [Path(home) / "bin" / "java" if home else "java", *self._jvm, "-cp", f"{jars()}/*"]

    def _format(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="ckpt-kafka-"))
        self._ports = _free_ports(3)
        plain, controller, sasl = (f"127.0.0.1:{port}" for port in self._ports)
        if self._proxy is not None:
            self._proxy.lead_to(self._ports[0])
        where = {
            "listeners": f"PLAINTEXT://{plain},CONTROLLER://{controller},SASL://{sasl}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},SASL://{sasl}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self._directory / "data"),
        }
        properties = self._directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in {**self._settings, **where}.items()))
        done = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", properties],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"Kafka's storage could not be made:\n{done.stdout}{done.stderr}")

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait(self, seconds: float = 180.0) -> None:
        from confluent_kafka import KafkaException

        assert self._process is not None
        deadline = time.monotonic() + seconds
        while True:
            with suppress(OSError, KafkaException):
                socket.create_connection(("127.0.0.1", self._ports[0]), timeout=1).close()
                self.admin().list_topics(timeout=5)
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not start:\n{self.log}")
            time.sleep(0.05)


def _has_leaders(admin: AdminClient, topic: str) -> bool:
    found = admin.list_topics(timeout=_STALL_SECONDS).topics.get(topic)
    return found is not None and all(partition.leader >= 0 for partition in found.partitions.values())


def _create(admin: AdminClient, topic: NewTopic) -> bool:
    """Create the topic, and return whether that succeeded; a broker that was paused is fenced for a moment."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        admin.create_topics([topic])[topic.topic].result(10)
    except TimeoutError:
        return topic.topic in admin.list_topics(timeout=_STALL_SECONDS).topics
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return True  # the client asked again, for the answer had got lost
        if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
            raise
        return False
    return True


def _until(done: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(what)
        time.sleep(0.05)


def main() -> None:
    """Serve until standard input ends."""
    with KafkaBroker() as broker, suppress(KeyboardInterrupt):
        print(broker.bootstrap, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
