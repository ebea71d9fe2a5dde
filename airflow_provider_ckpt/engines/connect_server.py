"""Find the Spark Connect server of a pipeline, wait until it listens, and recognise errors of a lost server."""

from __future__ import annotations

import re
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

from airflow_provider_ckpt.core.errors import ConfigError, EngineError
from airflow_provider_ckpt.ledger_location import airflow_connection
from airflow_provider_ckpt.spark.versions import grpc_status

if TYPE_CHECKING:
    from pyspark.sql.connect.client import DefaultChannelBuilder

_WAIT_SECONDS = 30.0
"""Seconds to wait for a server that does not listen yet, before the start fails."""

_PROBE_SECONDS = 3.0
_PAUSE = 0.3
_GONE = re.compile(
    r"INVALID_HANDLE\.(?:SESSION_CLOSED|SESSION_CHANGED|SESSION_NOT_FOUND|OPERATION_NOT_FOUND|OPERATION_ABANDONED)"
    r"|NO_ACTIVE_SESSION|RESPONSE_ALREADY_RECEIVED|Please create a new Spark Session to reconnect"
    r"|RETRIES_EXCEEDED"  # Spark 4.0's client, once it has tried long enough; later ones raise the last error
)


class ConnectHook(SparkConnectHook):
    """Hook of the apache-spark provider, which builds a server's URL from an Airflow connection.

    The connection must be of type ``spark_connect``.
    """

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        """Return the Airflow connection with the given id.

        :param conn_id: id of the connection
        :raises ConfigError: if the connection is not defined, or is of another type than ``spark_connect``
        """
        found = airflow_connection(conn_id)
        if found.conn_type != cls.conn_type:
            raise ConfigError(
                f"run.engine: connect needs a connection of type {cls.conn_type}, and {conn_id!r} is of type "
                f"{found.conn_type!r}.",
                hint="To start Spark on a master instead, write run.engine: submit.",
            )
        return found


def server_url(connection: str) -> str:
    """Return the URL of the server that an Airflow connection names; it may contain a token.

    :param connection: id of the Airflow connection
    :raises ConfigError: if the connection does not describe a Spark Connect server
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        url = ConnectHook(connection).get_connection_url()
        DefaultChannelBuilder(url)
    except (ValueError, AttributeError, PySparkException):  # their texts may contain the URL
        raise ConfigError(
            f"connection {connection!r} names no Spark Connect server.",
            hint="Give it a host, such as spark.example.org, and a port if it is not 15002; no path.",
        ) from None
    return url


def wait_for_server(builder: DefaultChannelBuilder, stopped: threading.Event) -> None:
    """Wait until the server listens, for 30 s at most. Spark's own client would try for minutes.

    :param builder: PySpark's object with the URL of the server
    :param stopped: event that ends the wait, because the task was killed
    :raises EngineError: if the server does not listen in time, or the wait was ended
    """
    host, port = builder.url.hostname, builder.url.port or builder.default_port()
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            socket.create_connection((host, port), _PROBE_SECONDS).close()
        except OSError as error:
            if time.monotonic() > deadline or stopped.wait(_PAUSE):
                raise EngineError(
                    f"no Spark Connect server answers at {builder.endpoint}: {error}.",
                    hint="Start it, or correct the connection that run.connection names.",
                ) from error
        else:
            return


def is_lost(error: BaseException) -> bool:
    """Return whether an error means that the server, or the session on the server, is lost."""
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    unavailable = isinstance(error, SparkConnectGrpcException) and grpc_status(error) == "UNAVAILABLE"
    return unavailable or _GONE.search(str(error)) is not None
