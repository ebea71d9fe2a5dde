"""A person's actions on a sink that a run has refused: accept it as it is, or move on to another one.

Both fence the sink and read its receipts first. An accepted sink is sent again what it has lost, or the pipeline goes
on from its checkpoint. A move settles with the sink so far, and the next run delivers to the one that it declares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.acts import Act, ActKind
from airflow_provider_ckpt.core.batch import BatchKey, BatchState, Receipt
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.letters import Letters, Replay
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.resending import Resend, find_lost
from airflow_provider_ckpt.core.sink_standing import Difference, SinkStanding, differences
from airflow_provider_ckpt.replication import owner as owners
from airflow_provider_ckpt.replication.acquire import acquire
from airflow_provider_ckpt.replication.setup import Opened
from airflow_provider_ckpt.replication.sink_checks import compare

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.protocols import Sink
    from airflow_provider_ckpt.ledger.records import ActResult, PartitionRecord
    from airflow_provider_ckpt.replication.setup import Setup

_RECEIPTS_LOST = frozenset({Difference.FENCE_BELOW, Difference.RECEIPTS_MISSING})


def accept(setup: Setup, *, resend: bool, start: Mapping[str, int] | None = None) -> Act:
    """The action by which a run goes on with the sink as it is now; changes nothing.

    :param resend: send again what the sink has no receipt for; else go on from the checkpoint
    :param start: by source partition, the first position to send again, where receipts do not tell what is lost
    :raises LedgerStateError: if the sink is as the ledger left it, so that there is nothing to accept
    :raises ConfigError: if the sink is another one, or nothing tells what has to be sent again
    """
    name, ledger = setup.pipeline.name, setup.ledger
    opened = Opened(setup)
    try:
        opened.check()
        known, found = compare(ledger, name, opened.sink)
        seen = differences(known, found)
        if not seen:
            raise LedgerStateError(
                "the sink is as this ledger left it, so there is nothing to accept.",
                pipeline=name,
                hint="To read something again, use `airflow ckpt rewind` or `replay range`.",
            )
        if Difference.OTHER_LOCATION in seen:
            raise ConfigError(
                f"the sink is {found.location}, and this pipeline delivered to {known.location} so far.",
                pipeline=name,
                hint=f'Say that this is meant with `airflow ckpt move {name} --reason "..."`.',
            )
        if not resend:
            unclear = _begun(ledger.partitions(name)) if _RECEIPTS_LOST & set(seen) else ()
            return Act(ActKind.ACCEPT_SINK, batches=unclear)
        if setup.pipeline.delivery == "at_most_once":
            raise ConfigError(
                "at most once, nothing is sent again.",
                pipeline=name,
                hint="Use --keep, and `airflow ckpt rewind` where records are to be read again all the same.",
            )
        return _resend(setup, opened.sink, receipts_tell=bool(_RECEIPTS_LOST & set(seen)), start=start or {})
    finally:
        opened.close()


def move(setup: Setup, *, unreachable: bool = False) -> Act:
    """The action after which the next run delivers to whatever sink it declares; changes nothing.

    :param setup: with the sink so far
    :param unreachable: whether that one cannot be asked any more what it has received
    """
    partitions = setup.ledger.partitions(setup.pipeline.name)
    return Act(ActKind.MOVE, batches=_begun(partitions) if unreachable else (), unreachable=unreachable)


def carry_out(setup: Setup, act: Act, *, who: str, why: str | None, proposal: str | None = None) -> ActResult:
    """Carry out :func:`accept` or :func:`move` behind the sink's fence; waits for the lease as the pipeline says.

    :param setup: of the pipeline; for a move, with the sink so far
    :param act: what :func:`accept` or :func:`move` made
    :param who: the person
    :param why: the reason; kept in the audit trail
    :param proposal: id of the approved proposal that this uses up
    :raises LeaseBusyError: if a run holds the lease
    :raises LedgerStateError: if the action does not fit any more; nothing was changed
    """
    ledger = setup.ledger
    if act.unreachable:
        terms = setup.pipeline.lease
        lease = ledger.acquire(setup.pipeline.name, setup.owner, terms.ttl, is_dead=owners.is_dead)
        try:
            return ledger.act_under(lease, act, who=who, why=why, proposal=proposal)
        finally:
            ledger.release(lease)
    with acquire(setup, accepting=act.kind is ActKind.ACCEPT_SINK) as run:
        result = ledger.act_under(run.lease, act, who=who, why=why, proposal=proposal)
        if act.kind is ActKind.ACCEPT_SINK:
            claims = run.sink.claims()
            ledger.note_sink(run.lease, SinkStanding(run.epoch, claims.target, run.sink.location))
        ledger.release(run.lease)
    return result


def _resend(setup: Setup, sink: Sink, *, receipts_tell: bool, start: Mapping[str, int]) -> Act:
    name, ledger = setup.pipeline.name, setup.ledger
    records = ledger.partitions(name)
    if start:
        return Act(ActKind.ACCEPT_SINK, positions=start)
    receipts = list(sink.receipts({}))
    gone = set(sink.missing([receipt.key for receipt in receipts])) if receipts else set()
    held = [receipt for receipt in receipts if receipt.key not in gone]
    first = ledger.first_positions(name)
    if any(receipt.counts.delivered for receipt in held) and sink.target_rows(exact=True) == 0:
        held = []
    elif not receipts_tell and not gone:
        raise ConfigError(
            "rows that were delivered may be gone although their receipts stand, and the target is not empty, so "
            "nothing tells which ones.",
            pipeline=name,
            hint="Name the first position to send again with --from, or go on with --keep; after emptying the target, "
            "--resend sends everything.",
        )
    lost = find_lost(
        (record.partition for record in records.values()),
        _places(held),
        first=first,
        skipped=ledger.skipped_ranges(name),
        by_key=setup.pipeline.sink.mode == "upsert",
    )
    return Act(ActKind.ACCEPT_SINK, positions=lost.positions, spans=lost.spans, letters=_replays(records, lost))


def _places(receipts: Sequence[Receipt]) -> dict[tuple[int, str], list[Range]]:
    found: dict[tuple[int, str], list[Range]] = {}
    for receipt in receipts:
        found.setdefault((receipt.key.generation, receipt.key.partition), []).append(receipt.range)
    return found


def _replays(records: Mapping[str, PartitionRecord], lost: Resend) -> tuple[Letters, ...]:
    """The dead letters whose replay is lost."""
    return tuple(
        placed.letters
        for partition, span in lost.replayed
        for placed in Replay.from_json(records[partition].state).within(span)
    )


def _begun(records: Mapping[str, PartitionRecord]) -> tuple[BatchKey, ...]:
    """Batches that were begun and have no verdict: without receipts nobody can tell whether they were delivered."""
    open_ones = (batch for record in records.values() for batch in record.partition.blocking.values())
    return tuple(sorted(b.key for b in open_ones if b.begun and b.state is not BatchState.HELD))
