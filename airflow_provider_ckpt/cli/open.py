"""Set up the pipeline of a command: its declaration, from a file or as its newest run stored it, and the ledger."""

from __future__ import annotations

import logging
from argparse import Namespace
from os import PathLike
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import Setup

log = logging.getLogger(__name__)


def read(file: str | PathLike[str]) -> Pipeline:
    """Load the pipeline that a file declares, and log its warnings.

    :raises ConfigError: if the declaration is invalid
    """
    from airflow_provider_ckpt.config.load import load
    from airflow_provider_ckpt.config.warnings import warnings

    pipeline = load(file)
    for warning in warnings(pipeline):
        log.warning("%s: %s", file, warning)
    return pipeline


def make(pipeline: Pipeline, ledger: Ledger) -> Setup:
    """Create the setup of a command: Airflow's connections and ``Stats``, with this process as owner of the lease."""
    from airflow_provider_ckpt.ledger_location import resolve_connection
    from airflow_provider_ckpt.replication.owner import of_this_process
    from airflow_provider_ckpt.replication.setup import Setup
    from airflow_provider_ckpt.stats import StatsMeter, initialize

    initialize()
    return Setup(pipeline, ledger, resolve_connection, of_this_process(), meter=StatsMeter(pipeline.name))


def setup_of(args: Namespace, ledger: Ledger) -> Setup:
    """Create the setup of the pipeline ``args.pipeline``, declared by ``args.file`` if given, else as stored.

    :raises ConfigError: if the file declares another pipeline, or no file is given and no declaration is stored
    """
    from airflow_provider_ckpt.replication.setup import stored_pipeline

    if args.file is None:
        return make(stored_pipeline(ledger, args.pipeline, instead="--file"), ledger)
    pipeline = read(args.file)
    if pipeline.name != args.pipeline:
        raise ConfigError(
            f"{args.file} declares pipeline {pipeline.name!r}, not {args.pipeline!r}.", hint="Name the right file."
        )
    return make(pipeline, ledger)
