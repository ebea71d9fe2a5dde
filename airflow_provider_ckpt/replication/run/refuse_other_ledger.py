"""Refuse a sink that holds another ledger's receipts for the pipeline (semantics, section 4, step 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sink_protocol import Claims
    from airflow_provider_ckpt.replication.setup import PipelineContext


def refuse_other_ledgers(setup: PipelineContext, claims: Claims) -> None:
    """Refuse a sink that holds receipts of another ledger for this pipeline, until a user adopts them.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param claims: state of the pipeline in its sink, which lists the ledgers that have receipts or a fence there
    :raises ConfigError: if the sink holds such receipts; the error names the ids of the other ledgers and of this one
    """
    other_ledgers = sorted(claims.ledgers - {setup.sink_id})
    if other_ledgers:
        raise ConfigError(
            f"the sink holds receipts of another ledger ({', '.join(other_ledgers)}) for this pipeline; "
            f"this ledger is {setup.ledger.id}",
            hint=f"Use that ledger; or, if it is lost, take its receipts over with `airflow ckpt adopt "
            f"{setup.pipeline.name}`; or give this pipeline another name or target.",
        )
