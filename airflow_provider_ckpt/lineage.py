"""Report lineage to OpenLineage: the datasets that a task read and wrote, and the numbers of rows.

The names of datasets follow OpenLineage's rules. The module needs the OpenLineage provider (extra ``openlineage``), so
it is imported only when that provider asks for lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.openlineage.extractors import OperatorLineage
from attrs import define
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import RunFacet, input_statistics_input_dataset, output_statistics_output_dataset

from airflow_provider_ckpt.config.installed_connectors import find_connector
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.registry import load
from airflow_provider_ckpt.replication.metric_names import Metric

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.connector_section import ConnectorSection
    from airflow_provider_ckpt.config.pipeline import Pipeline

DatasetName = tuple[str, str]
"""Namespace and name of a dataset."""


@define
class CkptRunFacet(RunFacet):
    """OpenLineage run facet ``ckpt``: the pipeline, and numbers of records by outcome, retries and failed commits.

    A commit is the delivery of one batch to the sink, or its settlement in the ledger.
    """

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
    :param connections: function that returns the connection with a given id
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


def dataset_name(section: ConnectorSection, connections: Callable[[str], Connection]) -> DatasetName:
    """Return namespace and name of a source or sink by OpenLineage's naming rules, without login or password.

    :param section: section ``source`` or ``sink`` of the declaration
    :param connections: function that returns the connection with a given id
    """
    connection = connections(section.connection) if section.connection else None
    dataset = find_connector(section.type).dataset
    if dataset is not None:
        return cast("DatasetName", load(dataset)(section, connection))
    host = f"{connection.host or ''}:{connection.port or ''}".strip(":") if connection else ""
    return f"{section.type}://{host}", section.place
