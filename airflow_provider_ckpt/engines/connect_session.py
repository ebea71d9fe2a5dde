"""Open a pipeline's session on a Spark Connect server. All runs share it, so that its Python workers stay warm.

The session's id is derived from the ledger, the pipeline, this package's code, PySpark's version and the Spark
properties. If one of these changes, so does the id, and a new session is used. A property of the session shows whether
an earlier run has set the session up completely.
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
from airflow_provider_ckpt.spark.versions import check_server, installed_pyspark

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
"""Number of times that Spark's client repeats a failed request, and the longest pause between two requests in ms.

The tries end after about 5 s; by default, Spark's client would go on for ten minutes.
"""

CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]
"""Options of gRPC, with which each channel has connections of its own.

By default, the channels of a process share connections, and with them the pause before the next attempt to connect.
While a server restarts, this pause grows to two minutes for the channel of the lost session; a new session would have
to wait as long.
"""

_KEY_OF_THIS_PROCESS = secrets.token_bytes(32)
"""Random key, used to derive session ids if Airflow has no Fernet key; no other process then finds the same session."""


def open_session(pipeline: Pipeline, ledger: str, stopped: threading.Event) -> SparkSession:
    """Return the pipeline's session on the server, set up for lanes; cancel operations that an earlier run left in it.

    :param pipeline: the pipeline's declaration
    :param ledger: id of the ledger, since another ledger may have a pipeline of the same name
    :param stopped: event that ends the wait for a server that does not respond, because the task was killed
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
        session = next(filter(None, (attach(url, found) for found in _ids(pipeline, ledger, code_zip))))
        if session.conf.get(_READY_PROPERTY, "false") != "true":
            _set_up(session, pipeline, code_zip)
    except PySparkException as error:
        raise EngineError(
            f"the Spark Connect server at {server.endpoint} opened no session: {without_ids(first_line(error))}",
            hint="Nothing was sent. Check the server's log, and start the server again if it has stopped.",
        ) from error
    return session


def _ids(pipeline: Pipeline, ledger: str, code_zip: CodeZip) -> Iterator[str]:
    """Yield the ids that the pipeline's session may have, in the order in which to try them; there is no last one.

    A server closes a session that is idle for an hour, and never opens a session with this id again; then the next id
    is used. Each day has ids of its own. Anyone who knows a session's id may join the session and run code with its
    data, so ids are signed with the key of :func:`session_key` and cannot be guessed without it.

    :param pipeline: the pipeline's declaration
    :param ledger: id of the ledger
    :param code_zip: this package's code
    """
    secret, pyspark = session_key(), installed_pyspark()
    day = datetime.now(UTC).date().isoformat()
    for number in count():
        session = [ledger, pipeline.name, code_zip.digest, pyspark, sorted(pipeline.run.conf.items()), day, number]
        signature = hmac.digest(secret, json.dumps(session).encode(), "sha256")
        yield str(uuid.UUID(bytes=signature[:16], version=4))


def session_key() -> bytes:
    """Return the secret key from which session ids are derived.

    It is Airflow's Fernet key, or without one a random key of this process, with a warning in the log.
    """
    from airflow.configuration import conf

    if key := str(conf.get("core", "fernet_key", fallback="")):
        return key.encode()
    log.warning(
        "Airflow has no Fernet key here, so this run cannot share a Spark Connect session with other runs, and starts "
        "its own Python workers. Set [core] fernet_key to the same value wherever tasks run."
    )
    return _KEY_OF_THIS_PROCESS


def without_ids(text: str) -> str:
    """Return a text in which ``***`` replaces the ids of sessions and operations.

    Anyone who knows the id of a session could join it.
    """
    return _ID.sub("***", text)


def attach(url: str, session_id: str) -> SparkSession | None:
    """Return the session with the given id, created if necessary; None if the server has closed it.

    Operations that an earlier run left in the session are cancelled.

    :param url: URL of the server
    :param session_id: id of the session
    :raises pyspark.errors.PySparkException: if the server refuses the session for another reason, or does not answer
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession(DefaultChannelBuilder(f"{url};session_id={session_id}", CHANNEL_OPTIONS))
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
    """Set the properties of a new session, and send it the code that lanes need.

    :param session: the session
    :param pipeline: the pipeline's declaration, with further properties in ``run.conf``
    :param code_zip: this package's code
    :raises ConfigError: if the server is of another version, or a property of ``run.conf`` cannot be set on a running
        server
    """
    from pyspark.errors import PySparkException

    assert pipeline.run.connection is not None
    check_server(session.version, pipeline.run.connection)
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
