"""Models of users' actions: the request, its dry run, the order to carry it out, the outcome, and proposals."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from airflow_provider_ckpt.api.models.dead_letters import DeadLetterFilter
from airflow_provider_ckpt.api.models.fields import ApiModel, BatchName, Moment, Position, RunLink
from airflow_provider_ckpt.api.models.lines import PartitionLine
from airflow_provider_ckpt.api.models.pipelines import Lease

ActionName = Literal[
    "hold",
    "release",
    "skip",
    "drain",
    "stop",
    "resume",
    "rewind",
    "replay",
    "replay_dead_letters",
    "discard_dead_letters",
    "recover",
    "force_stop",
    "resend_to_sink",
    "keep_sink",
    "move",
    "adopt",
    "accept_schema",
    "break_lease",
    "collect_garbage",
    "delete_pipeline",
]


class ActionWish(ApiModel):
    """Action that a user asks for. Fields that the kind does not take must be left out.

    :param kind: kind of the action
    :param batches: for hold and skip: the batches; for release: the batches, or none for all held ones
    :param partition: for rewind and replay: the source partition; may be left out if there is only one
    :param to_position: for rewind and resend_to_sink: first position to read again
    :param to_time: for rewind: time to whose checkpoint to return
    :param start: for replay: first position to read again
    :param end: for replay: first position that is not read again
    :param with_replayed: for replay: also read records again whose dead letters a replay has delivered
    :param dead_letters: for replay_dead_letters and discard_dead_letters: which dead letters; ``states`` is ignored
    :param stop_at: for the same: maximum number of dead letters, oldest first
    :param ledger_id: for adopt: id of the ledger whose receipts the sink holds
    :param keep_days: for collect_garbage: age in days from which history may be deleted
    """

    kind: ActionName
    batches: list[BatchName] = Field(default_factory=list, max_length=20_000)
    partition: str | None = Field(default=None, max_length=2000)
    to_position: Position | None = None
    to_time: Moment | None = None
    start: Position | None = None
    end: Position | None = None
    with_replayed: bool = False
    dead_letters: DeadLetterFilter | None = None
    stop_at: int | None = Field(default=None, ge=1)
    ledger_id: str | None = Field(default=None, min_length=1, max_length=200)
    keep_days: int | None = Field(default=None, ge=1, le=36_500)


class Change(ApiModel):
    """Value that an action changes: its name, and the value before and after."""

    what: str
    before: str
    after: str


class RecoveryForm(ApiModel):
    """Recovery DAG with its form filled in, for an action that needs source or sink.

    :param dag_id: id of the DAG
    :param conf: values of the form; ``reason`` is left to the user
    :param href: path of the DAG's page, relative to Airflow's base URL
    :param may_trigger: whether the user may trigger the DAG
    :param is_paused: whether the DAG is paused, so that a run would wait
    """

    dag_id: str
    conf: dict[str, Any]
    href: str
    may_trigger: bool
    is_paused: bool


class Preview(ApiModel):
    """Dry run of an action.

    :param id: one-time id with which the same user carries out exactly this action; None if there is nothing to do, or
        a DAG does it
    :param kind: kind of the action
    :param by: who does it: ``ledger`` at once; ``run`` when the next run applies it; ``dag`` by the recovery DAG
    :param summary: one sentence
    :param needs_reason: whether a reason is required
    :param expires_at: time until which the id can be used; None without an id
    :param waits_for: lease of the run that applies the action first; None if no run holds it
    :param broken: for break_lease: the lease that is broken; None for other actions
    :param needs_name: whether the order must repeat the pipeline's name
    :param changes: values that change
    :param before: number lines of the partitions concerned, at most 20
    :param after: the same after the action
    :param records: number of dead letters concerned; None for other actions
    :param remark: what happens next, or what to know; None without a remark
    :param recovery: recovery DAGs with the form filled in; empty unless ``by`` is ``dag``
    """

    id: str | None
    kind: ActionName
    by: Literal["ledger", "run", "dag"]
    summary: str
    needs_reason: bool
    expires_at: Moment | None
    waits_for: Lease | None
    broken: Lease | None
    needs_name: bool
    changes: list[Change]
    before: list[PartitionLine]
    after: list[PartitionLine]
    records: int | None
    remark: str | None
    recovery: list[RecoveryForm]


class ActionOrder(ApiModel):
    """Order to carry out an action that a dry run has shown.

    :param id: one-time id of the dry run
    :param reason: why; the audit log stores it
    :param name: for delete_pipeline: the pipeline's name, which the user has typed
    """

    id: str = Field(pattern="^[0-9a-f]{16}$")
    reason: str | None = Field(default=None, max_length=1000)
    name: str | None = Field(default=None, max_length=200)


class ActionOutcome(ApiModel):
    """Outcome of an action.

    :param kind: kind of the action
    :param state: ``applied``, or ``stored`` for a run
    :param number: number of the stored action; None if it was applied
    :param actor: actor as the audit log names it
    :param reason: the reason
    :param waits_for: lease of the run that applies it; None if it was applied, or no run holds the lease
    :param changes: values that changed; empty if it was stored
    :param remark: what happens next; None without a remark
    :param runs: DAGs that have run the pipeline and that the user may trigger, to run it now
    """

    kind: str
    state: Literal["applied", "stored"]
    number: int | None
    actor: str
    reason: str | None
    waits_for: Lease | None
    changes: list[Change]
    remark: str | None
    runs: list[str]


class ProposalRow(ApiModel):
    """Proposal of an action: a dry run of this page, or one that the recovery DAG made.

    :param id: id of the proposal
    :param kind: kind of the action
    :param by: ``page`` or ``dag``
    :param run: task of the recovery DAG that proposed it; None for the page
    :param asked_by: the user who asked for it
    :param reason: the reason
    :param state: open, approved, rejected, carried_out, refused or void
    :param created_at: when it was proposed
    :param expires_at: until when it can be used
    :param answered_by: the user who approved or rejected it; None if none has
    :param answered_at: when; None if none has
    :param number: number of the stored action that it became; None if it became none
    :param refusal: why it was refused; None if it was not
    """

    id: str
    kind: str
    by: Literal["page", "dag"]
    run: RunLink | None
    asked_by: str
    reason: str | None
    state: Literal["open", "approved", "rejected", "carried_out", "refused", "void"]
    created_at: Moment
    expires_at: Moment
    answered_by: str | None
    answered_at: Moment | None
    number: int | None
    refusal: str | None


class ProposalPage(ApiModel):
    """Newest proposals of a pipeline, newest first, at most 50."""

    items: list[ProposalRow]
