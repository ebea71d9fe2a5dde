"""The files of the run directory through which the lease holder and the driver communicate."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome, Wave
from airflow_provider_ckpt.spark.driver.run_directory_protocol import DriverSide, JsonLinesTail, LeaseHolderSide
from airflow_provider_ckpt.spark.job import Job

_KEY = BatchKey(1, "t", 0)


def _job() -> Job:
    secret = Connection("db", "postgres", password="hush")
    return Job(
        {"name": "orders"}, SinkContext("ledger", "orders", 2), RecordShape(False, [("id", "bigint")]), {"db": secret}
    )


def test_the_job_arrives_and_its_file_is_gone(tmp_path: Path) -> None:
    LeaseHolderSide(tmp_path).write_job(_job())
    assert DriverSide(str(tmp_path)).job() == _job()
    assert not (tmp_path / "job.json").exists()


def test_the_job_s_file_is_gone_even_if_the_job_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"password": "hush"')
    with pytest.raises(json.JSONDecodeError):
        DriverSide(str(tmp_path)).job()
    assert not (tmp_path / "job.json").exists()


def test_a_job_that_no_driver_took_is_withdrawn(tmp_path: Path) -> None:
    control = LeaseHolderSide(tmp_path)
    control.write_job(_job())
    control.delete_job()
    control.delete_job()
    assert not (tmp_path / "job.json").exists()


def test_the_job_s_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    LeaseHolderSide(tmp_path).write_job(_job())
    assert stat.S_IMODE((tmp_path / "job.json").stat().st_mode) == 0o600


def test_the_password_is_not_in_the_job_s_repr() -> None:
    assert "hush" not in repr(_job())
    assert "hush" not in repr(_job().connections["db"])


def test_waves_arrive_in_order_until_the_stop(tmp_path: Path) -> None:
    control = LeaseHolderSide(tmp_path)
    waves = [Wave(n, [[BatchTask(_KEY, Range(0, 5), n)]], 1.5) for n in (1, 2)]
    for wave in waves:
        control.send(wave)
    control.stop()
    assert list(DriverSide(str(tmp_path)).waves()) == waves


def test_replies_arrive_once(tmp_path: Path) -> None:
    driver, control = DriverSide(str(tmp_path)), LeaseHolderSide(tmp_path)
    outcome = Outcome(_KEY, 1, AttemptOutcome.NOT_ATTEMPTED)
    driver.ready(4, [("id", "bigint")], ui="http://driver:4040", application="local-1")
    driver.finished(1, [outcome], 0.5)
    driver.failed(2, ErrorInfo(ErrorType.PROCESSING, "a worker died"), final=False)

    ready, finished, failed = control.replies()

    assert ready == {
        "ready": 4,
        "columns": [["id", "bigint"]],
        "ui": "http://driver:4040",
        "application": "local-1",
    }
    assert [Outcome.from_json(item) for item in finished["outcomes"]] == [outcome]
    assert (failed["wave"], failed["final"]) == (2, False)
    assert control.replies() == []


def test_a_line_counts_once_its_newline_is_there(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    lines = JsonLinesTail(path)
    assert lines.read() == []
    with path.open("wb") as file:
        file.write(b'{"a": 1}\n{"a"')
        file.flush()
        assert lines.read() == [{"a": 1}]
        file.write(b": 2}\n")
        file.flush()
        assert lines.read() == [{"a": 2}]


def test_a_directory_that_was_removed_says_nothing_more(tmp_path: Path) -> None:
    DriverSide(str(tmp_path)).ready(4, [])
    control = LeaseHolderSide(tmp_path)
    assert len(control.replies()) == 1
    shutil.rmtree(tmp_path)
    assert control.replies() == []
