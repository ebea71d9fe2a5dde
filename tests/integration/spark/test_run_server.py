"""A standing driver on this process's session: its answers, and when it ends."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.engines.run_directory import RunDirectory
from airflow_provider_ckpt.spark.driver.run_server import RunServer
from airflow_provider_ckpt.spark.driver.session_conf import session_part
from airflow_provider_ckpt.spark.driver.standing_protocol import BELL, DRAINING, SOCKET, read_line, send_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Standing:
    """A driver in a thread.

    :param idle: seconds without runs after which it ends
    """

    def __init__(self, home: Path, spark: SparkSession, idle: float = 600.0) -> None:
        self.home = home
        self.driver = RunServer(home, spark, idle)
        self.thread = threading.Thread(target=self.driver.serve)
        self.thread.start()

    def connect(self, name: str = SOCKET) -> socket.socket:
        """A connection; the caller closes it."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(str(self.home / name))
        return connection

    def ask(self, request: dict[str, Any], name: str = SOCKET) -> dict[str, Any]:
        """Its answer to a request."""
        with self.connect(name) as connection:
            send_line(connection, request)
            return read_line(connection)


@pytest.fixture
def standing(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Standing]:
    found = Standing(tmp_path_factory.mktemp("s"), spark)
    yield found
    if found.thread.is_alive():
        name = SOCKET if (found.home / SOCKET).exists() else DRAINING
        if (found.home / name).exists():
            found.ask({"stop": "now"}, name)
    found.thread.join(20)
    assert not found.thread.is_alive()


def test_it_tells_its_state_and_survives_what_is_no_request(standing: Standing) -> None:
    for text in (b"\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", b'{"run": 1}\n', b'{"stop"'):
        with standing.connect() as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    told = standing.ask({"status": True})

    assert (told["pid"], told["runs_served"], told["runs"], told["accepts_runs"]) == (os.getpid(), 0, [], True)
    assert told["spark"][:2] == "4."


def test_a_run_without_a_job_ends_at_once_and_harms_no_other(standing: Standing) -> None:
    directory = RunDirectory()
    with standing.connect() as connection:
        send_line(connection, {"run": str(directory.path), "idle": 600})
        assert connection.recv(1) == BELL
        connection.sendall(BELL)
        assert connection.recv(1) == b""
    directory.remove()

    assert standing.ask({"status": True})["accepts_runs"]


def test_a_stop_waits_for_the_runs_that_it_has_and_lets_no_more_in(standing: Standing) -> None:
    directory = RunDirectory()
    with standing.connect() as idle:
        send_line(idle, {"status": True})
        waiting = standing.connect()
        os.mkfifo(directory.path / "job.json")  # the run waits for its job
        send_line(waiting, {"run": str(directory.path), "idle": 600})
        assert waiting.recv(1) == BELL
        waiting.sendall(BELL)

        assert standing.ask({"stop": "after runs"}) == {"runs": 1}
        late = standing.connect(DRAINING)
        send_line(late, {"run": str(directory.path), "idle": 600})
        assert late.recv(1) == b""
        late.close()
        assert not (standing.home / SOCKET).exists()
        assert standing.thread.is_alive()

        (directory.path / "job.json").write_bytes(b"")
        waiting.close()
        standing.thread.join(20)
        assert not standing.thread.is_alive()
    directory.remove()


def test_it_ends_when_it_was_removed_or_has_served_its_number_of_runs(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Standing(tmp_path_factory.mktemp("r"), spark)
    (removed.home / SOCKET).unlink()
    removed.thread.join(20)
    assert not removed.thread.is_alive()

    monkeypatch.setattr("airflow_provider_ckpt.spark.driver.run_server._MAX_RUNS", 1)
    worn = Standing(tmp_path_factory.mktemp("w"), spark)
    directory = RunDirectory()
    with worn.connect() as connection:
        send_line(connection, {"run": str(directory.path), "idle": 600})
        assert connection.recv(1) == BELL
        connection.sendall(BELL)
    worn.thread.join(20)
    directory.remove()
    assert not worn.thread.is_alive()


def test_each_property_of_a_session_is_one_that_spark_lets_a_session_set(spark: SparkSession) -> None:
    """One that cannot be set would fail the run that wants it."""
    known = [row["key"] for row in spark.sql("SET -v").collect()]
    of_session = [name for name in known if session_part({name: "x"})]

    assert len(of_session) > 100
    assert [name for name in of_session if not spark.conf.isModifiable(name)] == []
