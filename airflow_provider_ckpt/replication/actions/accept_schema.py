"""Accept one change of the source's columns that the schema policy forbids, so that the next run follows it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.schema import column_use
from airflow_provider_ckpt.connectors.source_protocol import SourceWithColumns
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.next_schema_version import NextVersion
from airflow_provider_ckpt.core.schema_acceptance import policy_digest
from airflow_provider_ckpt.core.schema_change import Frozen, decide
from airflow_provider_ckpt.core.schema_version import fingerprint
from airflow_provider_ckpt.replication.setup import OpenConnectors
from airflow_provider_ckpt.spark.columns import RESERVED

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.setup import PipelineContext

SHOWN_DIGITS = 12
"""Number of hexadecimal digits of a column fingerprint that users are shown and pass to accept the columns."""


def make_acceptance(setup: PipelineContext) -> Action:
    """Return the action that accepts the columns that the source has now; the function itself changes nothing.

    The next run follows the change as if the policy allowed it. It refuses the action if, by then, the columns have
    changed once more, the declaration has another policy, or another schema version has begun.

    :param setup: the pipeline with its ledger and connections
    :raises ConfigError: if the pipeline does not declare ``schema``, or the target cannot follow the change
    :raises LedgerStateError: if there is nothing to accept: no run has recorded the source's columns yet, they have not
        changed, or the policy allows the change
    """
    pipeline, ledger = setup.pipeline, setup.ledger
    if pipeline.schema_ is None:
        raise ConfigError(
            "the pipeline does not declare the section schema, so its runs do not compare the source's columns.",
            pipeline=pipeline.name,
            hint="Add the section schema to the declaration; the next run then records the first version.",
        )
    opened = OpenConnectors(setup)
    try:
        source = opened.source
        assert isinstance(source, SourceWithColumns)
        [partition] = source.partitions()
        now = source.columns()
        versions = ledger.schema_versions(pipeline.name, partition.id)
        if not versions:
            raise LedgerStateError(
                "there is nothing to accept: no run has recorded the source's columns yet.", pipeline=pipeline.name
            )
        newest, policy, use = versions[-1], pipeline.schema_.policy, column_use(pipeline, RESERVED)
        following = partial(decide, newest.columns, now, policy, use, source.is_wider, unresolved=False)
        undecided, decision = following(), following(accepted=True)
        if decision is None:
            raise LedgerStateError(
                f"there is nothing to accept: the source's columns are those of schema version {newest.number}.",
                pipeline=pipeline.name,
            )
        if not isinstance(undecided, Frozen | None):
            raise LedgerStateError(
                "there is nothing to accept: the policy allows the change.", pipeline=pipeline.name, hint="Run again."
            )
        if isinstance(decision, Frozen):
            raise ConfigError(
                f"the change cannot be accepted: {'; '.join(decision.reasons)}.",
                pipeline=pipeline.name,
                hint="Change the source's columns back, or the declaration.",
            )
        assert isinstance(decision, NextVersion)
    finally:
        opened.close()
    return Action(
        ActionKind.ACCEPT_SCHEMA,
        fingerprint=fingerprint(now),
        changes=tuple(decision.decision),
        version=newest.number,
        policy=policy_digest(policy),
    )


def refuse_other_columns(setup: PipelineContext, action: Action, shown: str) -> None:
    """Raise an error if a user may not accept columns: others than the user was shown, or columns accepted already.

    :param setup: the pipeline with its ledger
    :param action: action that :func:`make_acceptance` returned
    :param shown: fingerprint that the user was shown, or its first digits
    :raises ConfigError: if ``shown`` is not a fingerprint, or has fewer than 12 of its digits
    :raises LedgerStateError: if the columns have another fingerprint, or are accepted already
    """
    name = setup.pipeline.name
    look = f"Look at the change again with `airflow ckpt schema accept {name} --dry-run`."
    if len(shown) < SHOWN_DIGITS or not set(shown) <= set("0123456789abcdef"):
        raise ConfigError(f"{shown!r} is not the fingerprint of a source's columns.", pipeline=name, hint=look)
    if not action.fingerprint.startswith(shown):
        raise LedgerStateError(
            f"the source's columns are not those that were shown: their fingerprint is "
            f"{action.fingerprint[:SHOWN_DIGITS]}, not {shown[:SHOWN_DIGITS]}. Nothing was accepted.",
            pipeline=name,
            hint=look,
        )
    for stored in setup.ledger.stored_actions(name):
        if stored.action == action:
            raise LedgerStateError(
                f"{stored.actor} has accepted this change already, as action {stored.id}.",
                pipeline=name,
                hint="The next run follows it.",
            )
