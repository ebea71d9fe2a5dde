"""Commands for the page in Airflow: try an action, approve one's own proposal, and record views of source data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow_provider_ckpt.core.action import NEED_REASON, Action, ActionKind, require_reason
from airflow_provider_ckpt.core.proposals import ProposalState
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.ledger.commands import apply_action, proposals
from airflow_provider_ckpt.ledger.commands.apply_or_store import ACTION_TTL
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.queries.line import PartitionLine
from airflow_provider_ckpt.ledger.queries.page import lines_of
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import ActionResult, ProposalRecord
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork

MAX_LINES = 20
"""Maximum number of partitions whose number lines a dry run returns."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """Result of a dry run.

    :param result: the result, with the state before and after the action
    :param before: number lines of the affected partitions, before the action; see :class:`.PartitionLine`
    :param after: number lines of the same partitions after the action, and of side partitions that it starts
    """

    result: ActionResult
    before: list[PartitionLine]
    after: list[PartitionLine]


class DryRunCommands(Session):
    """Commands by which a user tries an action without effect, and then approves exactly that action."""

    def try_action(self, pipeline: str, action: Action, *, actor: str, is_dead: Callable[[str], bool]) -> DryRun:
        """Compute the effect of an action in a transaction that is rolled back, even if a run holds the lease.

        :param pipeline: name of the pipeline
        :param action: the action
        :param actor: the user who tries the action
        :param is_dead: function that returns whether the process of a lease owner has certainly ended
        :return: the result, and number lines of at most :data:`MAX_LINES` affected partitions before and after
        :raises ConfigError: if the ledger does not know the pipeline
        :raises LedgerStateError: if the pipeline's state does not allow the action
        """
        with self._writing() as connection:
            status.require_pipeline(connection, pipeline)
            names = _partitions_of(action)[:MAX_LINES]
            before = lines_of(connection, pipeline, dict.fromkeys(names))
            windows = {found.partition: _with_target(found.window, action, found.partition) for found in before}
            before = lines_of(connection, pipeline, windows)
            known = set(status.partitions(connection, pipeline))
            lease, _, _ = lease_store.acquire(connection, pipeline, actor, ACTION_TTL, 0, is_dead, force=True)
            work = UnitOfWork(connection, lease, datetime.now(UTC))
            result = apply_action.apply(work, action, actor=actor, reason=None)
            started = sorted(set(work.stored) - known)[: MAX_LINES - len(windows)]
            after = lines_of(connection, pipeline, {**windows, **dict.fromkeys(started)})
            connection.rollback()
            return DryRun(replace(result, applied=False), before, after)

    def take_up(
        self,
        proposal_id: str,
        *,
        pipeline: str,
        origin: str,
        actor: str,
        reason: str | None = None,
        check: Callable[[Action], None] = lambda _: None,
    ) -> ProposalRecord:
        """Approve a proposal in the name of the user who made it, so that it can be carried out once, and return it.

        :param proposal_id: id of the proposal
        :param pipeline: name of the pipeline; the proposal must be for this pipeline
        :param origin: the page, its user and the pipeline, such as ``page:7:orders`` for user 7; the origin that is
            stored with the proposal must be the same
        :param actor: the user; the proposal must be this user's own
        :param reason: the user's explanation, of which only the presence is checked; None if there is none
        :param check: function that raises an error if the user may not carry the action out; the proposal stays open
            then
        :return: the proposal in the state ``approved``
        :raises ConfigError: if the action needs a reason and there is none; the proposal stays open then
        :raises LedgerStateError: if there is no such proposal, it was used, or it is no longer valid
        """
        with self._writing() as connection:
            found = proposals.load_own(connection, proposal_id, pipeline=pipeline, origin=origin, actor=actor)
            kind = found.proposal.action.kind
            check(found.proposal.action)
            require_reason(kind, actor, reason, required=kind in NEED_REASON)
            proposals.approve(connection, found, actor=actor)
            return replace(found, state=ProposalState.APPROVED, answered_by=actor)

    def record_look(self, pipeline: str, kind: str, detail: Mapping[str, Any], *, actor: str) -> None:
        """Record in the audit log that a user has viewed data of the source, such as the content of dead letters.

        :param pipeline: name of the pipeline
        :param kind: kind of the event, such as ``dead_letters_read``
        :param detail: detail of the event, JSON-ready
        :param actor: the user
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._writing() as connection:
            status.require_pipeline(connection, pipeline)
            lease = lease_store.lock_row(connection, pipeline)
            row = {
                "pipeline": pipeline,
                "at": lease_store.database_time(connection),
                "kind": kind,
                "actor": actor,
                "epoch": None if lease is None else lease.epoch,
                "generation": None,
                "partition": None,
                "seq": None,
                "detail": dict(detail),
            }
            bulk_sql.insert(connection, tables.event, [row])


def _partitions_of(action: Action) -> list[str]:
    """Return the ids of the partitions that an action changes, sorted and each only once.

    These are the partitions of its batches, positions, ranges and dead letters. Dead letters to replay do not count,
    since a replay sends them in a side partition.
    """
    names = [key.partition for key in action.batches]
    names += [*action.positions, *(name for name, _ in action.ranges)]
    if action.kind is not ActionKind.REPLAY_DEAD_LETTERS:
        names += [item.key.partition for item in action.dead_letters]
    return sorted(set(names))


def _with_target(window: Range, action: Action, partition: str) -> Range:
    """Return the smallest range that contains a window and the positions that an action names in a partition.

    :param window: range of positions that a number line shows
    :param action: the action
    :param partition: id of the partition
    """
    spans = [span for name, span in action.ranges if name == partition]
    starts = [span.start for span in spans] + [action.positions.get(partition, window.start)]
    ends = [span.end for span in spans]
    return Range(min(window.start, *starts), max(window.end, *ends) if ends else window.end)
