"""People's acts that need the sink: rewind, force stop, and adopting another ledger's receipts.

Semantics, sections 2 to 4. Each acquires under a new epoch, fences and reconciles like a run, acts, and releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.acts import ActKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication import owner as owners
from airflow_provider_ckpt.replication.acquire import acquire
from airflow_provider_ckpt.replication.setup import Opened, Setup

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.acts import Act
    from airflow_provider_ckpt.core.batch import BatchKey
    from airflow_provider_ckpt.ledger.records import ActResult


def carry_out(setup: Setup, act: Act, *, who: str, why: str | None) -> ActResult:
    """Carry out an act behind the sink's fence.

    A force stop takes the lease from whoever holds it; anything else waits for it as the pipeline's ``lease`` says.

    :param who: the person
    :param why: the reason; kept in the audit trail
    :raises LeaseBusyError: if a run holds the lease; the act was not stored
    :raises LedgerStateError: if the act does not fit; nothing was changed
    """
    force = act.kind is ActKind.FORCE_STOP
    with acquire(setup, force=force) as run:
        result = setup.ledger.act_under(run.lease, act, who=who, why=why)
        setup.ledger.release(run.lease)
    return result


def position_of_batch(setup: Setup, key: BatchKey) -> dict[str, int]:
    """Where a batch of the past begins, by its receipt in the sink: ``{partition: position}``, as rewind takes it.

    :raises ConfigError: if the sink holds no such receipt (any more)
    """
    opened = Opened(setup)
    try:
        for receipt in opened.sink.receipts({}):
            if receipt.key == key:
                return {key.source: receipt.range.start}
    finally:
        opened.close()
    raise ConfigError(
        f"the sink holds no receipt of {key}.",
        pipeline=setup.pipeline.name,
        batch=str(key),
        hint="Rewind to a position or a time instead.",
    )


def adopt(setup: Setup, ledger_id: str, *, who: str, why: str) -> None:
    """Go on where another ledger left off: its receipts in the sink are this pipeline's own from now on.

    The next run imports them, so what they speak of is not sent again. The other ledger, should it still run, is fenced
    then.

    :param ledger_id: the other ledger's id, as the refusal of a run names it
    :raises ConfigError: if the sink holds nothing under this id
    """
    opened = Opened(setup)
    try:
        claims = opened.sink.claims()
    finally:
        opened.close()
    if ledger_id not in claims.ledgers:
        raise ConfigError(
            f"the sink holds no receipts of ledger {ledger_id} for this pipeline.",
            pipeline=setup.pipeline.name,
            hint=f"It holds those of: {', '.join(sorted(claims.ledgers)) or 'none'}.",
        )
    ledger = setup.ledger
    terms = setup.pipeline.lease
    lease = ledger.acquire(setup.pipeline.name, setup.owner, terms.ttl, at_least=claims.epoch, is_dead=owners.is_dead)
    try:
        ledger.adopt(lease, ledger_id, who=who, why=why)
    finally:
        ledger.release(lease)
