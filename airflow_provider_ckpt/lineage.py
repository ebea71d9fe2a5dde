"""Report lineage to OpenLineage: the datasets that a task read and wrote, and the numbers of rows.

The names of datasets follow OpenLineage's rules. The module needs the OpenLineage provider (extra ``openlineage``), so
it is imported only when that provider asks for lineage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.openlineage.extractors import OperatorLineage
from attrs import define
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import RunFacet, input_statistics_input_dataset, output_statistics_output_dataset

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import bootstrap_servers
from airflow_provider_ckpt.connectors.postgres.client import split_table
from airflow_provider_ckpt.connectors.storage.open_location import open_location
from airflow_provider_ckpt.replication.metric_names import Metric

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.config.sink import SinkSection
    from airflow_provider_ckpt.config.source import SourceSection

DatasetName = tuple[str, str]
"""Namespace and name of a dataset."""


@define
class CkptRunFacet(RunFacet):
    """Run facet ``ckpt`` of OpenLineage: numbers of a task's records by outcome, retries and failed commits."""

    pipeline: str
    read: int
    delivered: int
    filtered: int
    deadLettered: int  # noqa: N815  # OpenLineage's spelling of keys
    retries: int
    commitFailures: int  # noqa: N815


def lineage_of(
    pipeline: Pipeline, totals: Mapping[Metric, int], connections: Callable[[str], Connection]
) -> OperatorLineage[Any, Any] | None:
    """Return the datasets that a task read and wrote, with row counts; None if the task has settled no batch.

    :param pipeline: declaration of the pipeline that the task ran
    :param totals: values of the task's counters
    :param connections: function that returns the connection of an id
    """
    if not totals[Metric.COMMITTED]:
        return None
    read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=totals[Metric.READ])
    written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=totals[Metric.DELIVERED])
    source, sink = dataset_name(pipeline.source, connections), dataset_name(pipeline.sink, connections)
    return OperatorLineage(
        inputs=[InputDataset(*source, inputFacets={"inputStatistics": read})],
        outputs=[OutputDataset(*sink, outputFacets={"outputStatistics": written})],
        run_facets={
            "ckpt": CkptRunFacet(
                pipeline.name,
                totals[Metric.READ],
                totals[Metric.DELIVERED],
                totals[Metric.FILTERED],
                totals[Metric.DEAD_LETTERED],
                totals[Metric.RETRIES],
                totals[Metric.COMMIT_FAILED],
            )
        },
    )


def dataset_name(half: SourceSection | SinkSection, connections: Callable[[str], Connection]) -> DatasetName:
    """Return namespace and name of a source or sink by OpenLineage's naming rules, without login or password.

    The namespace of an Iceberg table is its catalog, since only the catalog knows the table's location.

    :param half: section ``source`` or ``sink`` of the declaration
    :param connections: function that returns the connection of an id
    """
    connection = connections(half.connection) if half.connection else None
    if half.path is not None:
        uri = open_location(half.path, "path", connection).uri
        bucket, _, key = uri.partition("://")[2].partition("/")
        return (f"{uri.partition('://')[0]}://{bucket}", key) if bucket else ("file", uri)
    assert connection is not None
    if half.topic is not None:
        return f"kafka://{bootstrap_servers(connection).partition(',')[0].strip()}", half.topic
    table = str(half.table)
    if half.type == "postgres":
        schema, name = split_table(table)
        host = f"postgres://{connection.host or 'localhost'}:{connection.port or 5432}"
        return host, f"{connection.schema or connection.login}.{schema or 'public'}.{name}"
    if half.type == "iceberg":
        return _without_credentials(str(connection.extra.get("uri") or connection.extra.get("type"))), table
    return _jdbc_dataset_name(connection.host or "", table)


def _jdbc_dataset_name(url: str, table: str) -> DatasetName:
    """Return namespace and name of a JDBC table, as OpenLineage's integration of the database forms them.

    :param url: JDBC URL of the database
    :param table: name of the table, with its schema if there is one
    """
    kind, _, address = re.split(r"[;?(,]|[:/&]?[\w.$-]+=", url.removeprefix("jdbc:"))[0].partition(":")
    address = address.rpartition("@")[2]  # an Oracle URL has user/password before the @
    host, _, database = address.rpartition("//")[2].partition("/")
    schema, name = split_table(table) if table.count(".") < 2 else (None, table)
    if kind == "postgresql":
        kind, schema, host = "postgres", schema or "public", host if ":" in host else f"{host}:5432"
    return f"{kind}://{host}", ".".join(part for part in (database, schema, name) if part)


def _without_credentials(uri: str) -> str:
    """Return the URI of a catalog without login and options, since both may contain secrets."""
    url = urlsplit(uri)
    return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
