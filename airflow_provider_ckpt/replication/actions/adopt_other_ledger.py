"""Adopt another ledger's receipts in the sink, for a pipeline whose former ledger was lost (semantics, section 4)."""

from __future__ import annotations

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger.types import ActionResult
from airflow_provider_ckpt.replication import process_lease_owner as owners
from airflow_provider_ckpt.replication.setup import OpenConnectors, PipelineContext


def adopt(
    setup: PipelineContext,
    ledger_id: str,
    *,
    actor: str,
    reason: str,
    dry_run: bool = False,
    proposal: str | None = None,
) -> ActionResult:
    """Take over the receipts that another ledger has in the sink for this pipeline.

    The next run imports these receipts, so that records with a receipt are not sent again, and fences the other
    ledger's runs.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param ledger_id: id of the other ledger, as the error of a refused run names it
    :param actor: the user who requests the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores
    :param dry_run: whether to only check that the receipts can be adopted, and change nothing
    :param proposal: id of the approved proposal that the action carries out, which cannot be used again; None if the
        action needs no approval
    :return: the result, with the ledger under whose id the receipts of this pipeline are read, before and after
    :raises ConfigError: if the sink has no receipts under this id, or already has receipts of this ledger
    :raises LeaseBusyError: if a run holds the lease, except in a dry run
    """
    opened = OpenConnectors(setup)
    try:
        claims = opened.sink.claims()
    finally:
        opened.close()
    if setup.sink_id in claims.ledgers - {ledger_id}:
        raise ConfigError(
            f"the sink holds receipts of this pipeline under {setup.sink_id} already, and they cannot be merged.",
            pipeline=setup.pipeline.name,
            hint="Give this pipeline another name or target.",
        )
    if ledger_id not in claims.ledgers:
        raise ConfigError(
            f"the sink holds no receipts of ledger {ledger_id} for this pipeline.",
            pipeline=setup.pipeline.name,
            hint=f"It holds receipts of these ledgers: {', '.join(sorted(claims.ledgers)) or 'none'}.",
        )
    if dry_run:
        return ActionResult(
            Action(ActionKind.ADOPT, ledger_id=ledger_id),
            applied=False,
            before={"receipts in the sink": f"of ledger {setup.sink_id}"},
            after={"receipts in the sink": f"of ledger {ledger_id}"},
        )
    ledger = setup.ledger
    terms = setup.pipeline.lease
    lease = ledger.acquire(setup.pipeline.name, setup.owner, terms.ttl, at_least=claims.epoch, is_dead=owners.is_dead)
    try:
        return ledger.adopt(lease, ledger_id, actor=actor, reason=reason, proposal=proposal)
    finally:
        ledger.release(lease)
