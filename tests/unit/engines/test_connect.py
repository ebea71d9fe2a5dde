"""The ``connect`` engine without a server that answers: a killed task does not wait for one."""

from __future__ import annotations

import json
import socket
import time
from itertools import islice

import pytest

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.core.wave_messages import Wave
from airflow_provider_ckpt.engines import connect_session
from airflow_provider_ckpt.engines.code_zip import CodeZip
from airflow_provider_ckpt.engines.connect import ConnectEngine
from airflow_provider_ckpt.engines.connect_session import _ids, without_ids
from airflow_provider_ckpt.engines.factory import make_engine
from airflow_provider_ckpt.engines.submit import SubmitEngine
from airflow_provider_ckpt.spark.job import Job

_PIPELINE = {
    "name": "numbers",
    "source": {"type": "files", "path": "/in"},
    "transform": {"decode": "json", "schema": "a bigint"},
    "sink": {"type": "delta", "path": "/out"},
}


def job() -> Job:
    return Job(
        _PIPELINE, SinkContext("ledger", "numbers", 1), RecordShape(raw=True, columns=(("value", "binary"),)), {}
    )


def go_on() -> None:
    """A run's check that finds nothing wrong."""


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline on a server that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        nowhere = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": free.getsockname()[1]}
    monkeypatch.setenv("AIRFLOW_CONN_SERVER", json.dumps(nowhere))
    return Pipeline.model_validate(_PIPELINE | {"run": {"engine": "connect", "connection": "server"}})


def test_a_stopped_engine_says_so_at_once_and_starts_nothing_more(pipeline: Pipeline) -> None:
    engine = ConnectEngine(pipeline)
    engine.start(job())
    started = time.monotonic()

    engine.kill()
    with pytest.raises(EngineError, match="Spark was stopped"):
        engine.ready(go_on)

    assert time.monotonic() - started < 15, "it waited for the server"
    for action in (lambda: engine.start(job()), lambda: engine.run(Wave(1, [], 5), go_on)):
        with pytest.raises(EngineError, match="Spark was stopped"):
            action()
    assert not engine.revive()


def test_a_lost_lease_ends_the_wait_for_a_server(pipeline: Pipeline) -> None:
    engine = ConnectEngine(pipeline)
    engine.start(job())

    def lost() -> None:
        raise ConnectionError("the lease was lost")

    with pytest.raises(ConnectionError):
        engine.ready(lost)
    engine.kill()


def test_a_pipeline_gets_the_engine_that_it_names(pipeline: Pipeline) -> None:
    assert isinstance(make_engine(pipeline), ConnectEngine)
    submitted = {**_PIPELINE, "run": {"engine": "submit"}}
    assert isinstance(make_engine(Pipeline.model_validate(submitted)), SubmitEngine)


def first_ids(pipeline: Pipeline) -> list[str]:
    """The likeliest ids of the pipeline's session."""
    return list(islice(_ids(pipeline, "ledger", CodeZip()), 2))


def test_a_session_s_id_is_the_same_for_all_who_have_airflow_s_key_and_no_one_else(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "a")
    ids = first_ids(pipeline)

    assert first_ids(pipeline) == ids
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "b")
    assert not set(first_ids(pipeline)) & set(ids)


def test_without_airflow_s_key_nobody_else_finds_a_session(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "")
    here = first_ids(pipeline)

    assert first_ids(pipeline) == here
    monkeypatch.setattr(connect_session, "_KEY_OF_THIS_PROCESS", b"of another process")
    assert not set(first_ids(pipeline)) & set(here)


@pytest.mark.parametrize(("key", "says"), [("", "[core] fernet_key"), ("a", "")])
def test_a_run_without_airflow_s_key_says_that_it_finds_no_warm_session(
    key: str, says: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", key)

    connect_session.session_key()

    assert says in caplog.text
    assert bool(caplog.text) == bool(says)


def test_no_message_shows_a_session_s_id() -> None:
    said = "[INVALID_HANDLE.SESSION_CLOSED] The handle 5A6b7e2f-6d0c-4b0e-9d55-0f5c6a1f8c11 is invalid."

    assert without_ids(said) == "[INVALID_HANDLE.SESSION_CLOSED] The handle *** is invalid."
