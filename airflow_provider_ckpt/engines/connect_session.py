"""Open a pipeline's session on a Spark Connect server: the same for all its runs, so that Python workers stay warm.

The session's id is derived from the ledger, the pipeline, this package's code and the properties. So a run that finds a
session with this id need not set it up again, and never finds one that is set up differently.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import secrets
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError, EngineError
from airflow_provider_ckpt.engines.code_zip import CodeZip
from airflow_provider_ckpt.engines.connect_server import server_url, wait_for_server
from airflow_provider_ckpt.spark.sql import first_line

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_READY_PROPERTY = "spark.ckpt.ready"
_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.codegen.hugeMethodLimit": "8000",  # Java interprets longer methods, which takes ten times as long
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.variable.substitute": "false",  # else Spark silently replaces ${...} in a user's expression
}
_CLOSED = "INVALID_HANDLE.SESSION_CLOSED"
_RETRIES, _LONGEST_MS = 5, 2_000
"""Number of retries, and longest pause in ms: about 5 s in total. By default Spark's client retries for ten minutes."""

_KEY_OF_THIS_PROCESS = secrets.token_bytes(32)
"""Key of this process, used if Airflow has no Fernet key: other tasks and commands then have other sessions."""


def open_session(pipeline: Pipeline, ledger: str, stopped: threading.Event) -> SparkSession:
    """Return the pipeline's session, ready for lanes; operations that an earlier run left running in it are cancelled.

    :param pipeline: the pipeline
    :param ledger: id of the ledger, since another ledger may have a pipeline of the same name
    :param stopped: ends the wait for a server that does not respond
    :raises ConfigError: if the connection or ``run.conf`` cannot be used
    :raises EngineError: if there is no server, or it opens no session
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    assert pipeline.run.connection is not None
    url = server_url(pipeline.run.connection)
    server = DefaultChannelBuilder(url)
    wait_for_server(server, stopped)
    code_zip = CodeZip()
    try:
        session = next(filter(None, (_attach(url, found) for found in _ids(pipeline, ledger, code_zip))))
        if session.conf.get(_READY_PROPERTY, "false") != "true":
            _set_up(session, pipeline, code_zip)
    except PySparkException as error:
        raise EngineError(
            f"the Spark Connect server at {server.endpoint} opened no session: {without_ids(first_line(error))}"
        ) from error
    return session


def _ids(pipeline: Pipeline, ledger: str, code_zip: CodeZip) -> Iterator[str]:
    """Yield the ids that the pipeline's session may have, the likeliest first; they cannot be guessed without the key.

    Anyone who knows a session's id may join the session and run code with its data. So ids are made with the key of
    :func:`session_key`.

    A server never reopens a session that it has closed, and it closes one that is idle for an hour. Then the day's next
    id is used.
    """
    secret = session_key()
    day = datetime.now(UTC).date().isoformat()
    for number in count():
        session = [ledger, pipeline.name, code_zip.digest, sorted(pipeline.run.conf.items()), day, number]
        signature = hmac.digest(secret, json.dumps(session).encode(), "sha256")
        yield str(uuid.UUID(bytes=signature[:16], version=4))


def session_key() -> bytes:
    """Return the key from which session ids are made: Airflow's Fernet key, or one that only this process has."""
    from airflow.configuration import conf

    if key := str(conf.get("core", "fernet_key", fallback="")):
        return key.encode()
    log.warning(
        "Airflow has no Fernet key here, so this run has a Spark Connect session that no other run finds, with workers "
        "that have to start. Set [core] fernet_key to the same value wherever tasks run."
    )
    return _KEY_OF_THIS_PROCESS


def without_ids(text: str) -> str:
    """Return a text without the ids of sessions and operations, with which others could join them."""
    return _ID.sub("***", text)


def _attach(url: str, session_id: str) -> SparkSession | None:
    """Return the session of an id, or None if the server has closed it."""
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession(f"{url};session_id={session_id}")
    session.client.set_retry_policies([DefaultPolicy(_RETRIES, max_backoff=_LONGEST_MS)])
    try:
        session.interruptAll()
    except PySparkException as error:
        session.client.close()
        if _CLOSED not in str(error):
            raise
        return None
    return session


def _set_up(session: SparkSession, pipeline: Pipeline, code_zip: CodeZip) -> None:
    """Set the session's properties and add the code that lanes need.

    :raises ConfigError: if a property cannot be set on a running server
    """
    from pyspark.errors import PySparkException

    for name, value in {**_CONF, **pipeline.run.conf}.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            if name not in pipeline.run.conf:
                raise
            raise ConfigError(
                f"run.conf: {name} cannot be set: {first_line(error)}",
                pipeline=pipeline.name,
                hint="A Spark Connect server accepts session properties only; set other ones where it is started.",
            ) from error
    with tempfile.TemporaryDirectory(prefix="ckpt-parcel-") as folder:
        path = Path(folder) / "airflow_provider_ckpt.zip"
        code_zip.write(path)
        try:
            session.addArtifacts(str(path), pyfile=True)
        finally:
            with suppress(ValueError):
                sys.path.remove(str(path))
    session.conf.set(_READY_PROPERTY, "true")
