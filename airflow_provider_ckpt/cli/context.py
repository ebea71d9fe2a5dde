"""Create the :class:`PipelineContext` with which a command works on a pipeline: declaration, ledger, connections.

The declaration comes from a file, or is the one that the pipeline's newest run stored in the ledger.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from os import PathLike
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import PipelineContext

log = logging.getLogger(__name__)


def load_pipeline(file: str | PathLike[str]) -> Pipeline:
    """Load the pipeline that a file declares, and log its warnings.

    :raises ConfigError: if the declaration is invalid
    """
    from airflow_provider_ckpt.config.load import load
    from airflow_provider_ckpt.config.warnings import warnings

    pipeline = load(file)
    for warning in warnings(pipeline):
        log.warning("%s: %s", file, warning)
    return pipeline


def make_context(pipeline: Pipeline, ledger: Ledger) -> PipelineContext:
    """Return the context in which a command works on a pipeline, for example with its ledger and its lease owner.

    Connections come from Airflow, and metrics go to Airflow. The lease owner is this process.

    :param pipeline: the declaration
    :param ledger: the open ledger
    """
    from airflow_provider_ckpt.airflow_versions import initialize_stats
    from airflow_provider_ckpt.ledger_location import resolve_connection
    from airflow_provider_ckpt.replication.process_lease_owner import of_this_process
    from airflow_provider_ckpt.replication.setup import PipelineContext
    from airflow_provider_ckpt.stats import StatsMeter

    initialize_stats()
    return PipelineContext(pipeline, ledger, resolve_connection, of_this_process(), meter=StatsMeter(pipeline.name))


def context_of(args: Namespace, ledger: Ledger) -> PipelineContext:
    """Return the context of the pipeline ``args.pipeline``, see :func:`make_context`.

    The declaration is read from ``args.file``, or from the ledger if no file is given.

    :param args: arguments of the command
    :param ledger: the open ledger
    :raises ConfigError: if the file declares another pipeline, or no file is given and no declaration is stored
    """
    from airflow_provider_ckpt.replication.setup import stored_pipeline

    if args.file is None:
        return make_context(stored_pipeline(ledger, args.pipeline, instead="--file"), ledger)
    pipeline = load_pipeline(args.file)
    if pipeline.name != args.pipeline:
        raise ConfigError(
            f"{args.file} declares pipeline {pipeline.name!r}, not {args.pipeline!r}.",
            hint="Give --file the pipeline's own file.",
        )
    return make_context(pipeline, ledger)
