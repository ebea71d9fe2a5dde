"""Models of users' actions: requested action, dry run, request to carry the action out, outcome, and proposals."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from airflow_provider_ckpt.api.models.dead_letters import DeadLetterFilter
from airflow_provider_ckpt.api.models.fields import ApiModel, BatchName, Moment, Position, RunLink
from airflow_provider_ckpt.api.models.lines import PartitionLine
from airflow_provider_ckpt.api.models.pipeline_list import Lease

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
    """Action that a user requests. Fields that the kind of action does not take must be left out.

    :param kind: kind of the action
    :param batches: for hold and skip: names of the batches; for release: names of the batches, or empty for all that
        are held at the time of the dry run
    :param partition: for rewind, replay and resend_to_sink: id of the source partition. It may be left out if there is
        only one; a rewind to a time without it concerns all source partitions
    :param to_position: for rewind and resend_to_sink: first position to send again
    :param to_time: for rewind, in place of ``to_position``: a time; the checkpoint returns to its position at this time
    :param start: for replay: first position to send again
    :param end: for replay: end of the range to send again, exclusive
    :param with_replayed: for replay: whether to also send records again that a replay of dead letters has delivered
    :param dead_letters: for replay_dead_letters and discard_dead_letters: selection of dead letters. The action affects
        only parked dead letters; ``states`` is ignored
    :param stop_at: for replay_dead_letters and discard_dead_letters: maximum number of dead letters; those with the
        lowest positions are taken
    :param ledger_id: for adopt: id of the other ledger whose receipts are in the sink
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
    """A value that an action changes.

    :param what: name of the value, such as ``phase`` or the name of a batch
    :param before: the value before the action
    :param after: the value after the action
    """

    what: str
    before: str
    after: str


class RecoveryForm(ApiModel):
    """A recovery DAG that can carry out an action which needs the source or the sink, and the values of its form.

    :param dag_id: id of the DAG
    :param conf: values for the form with which the DAG is triggered; the user adds ``reason``
    :param href: path of the DAG's page, relative to Airflow's base URL
    :param may_trigger: whether the user may trigger the DAG
    :param is_paused: whether the DAG is paused, so that a triggered run does not start
    """

    dag_id: str
    conf: dict[str, Any]
    href: str
    may_trigger: bool
    is_paused: bool


class Preview(ApiModel):
    """Result of the dry run of an action: the changes that it would make, and the id with which to carry it out.

    :param id: id with which the same user can carry out exactly this action, once; None if there is nothing to do, or
        if only a recovery DAG can carry out the action
    :param kind: kind of the action
    :param by: the way in which the action is carried out. ``ledger``: at once, in the ledger; ``run``: the ledger
        stores the action, and a run applies it; ``dag``: a recovery DAG carries it out
    :param summary: description of the action, in one sentence
    :param needs_reason: whether the action requires a reason
    :param expires_at: time until which ``id`` can be used; None if ``id`` is None
    :param waits_for: lease of the run that is to apply the action; None if no run holds the lease, or the action does
        not wait for a run
    :param broken: for break_lease: the lease that the action breaks; None for other actions
    :param needs_name: whether the request to carry out the action must contain the pipeline's name (``name``) as a
        confirmation
    :param changes: values that the action changes, at most 500
    :param before: number lines of the partitions that the action changes, before the action; at most 20
    :param after: number lines of these partitions after the action, and of side partitions that it creates; at most 20
    :param records: number of dead letters that the action replays or discards; None for other actions
    :param remark: sentence about consequences of the action that ``changes`` does not show, or about the lack of a
        recovery DAG for it; None if there is nothing to explain
    :param recovery: recovery DAGs that can carry out the action; empty unless ``by`` is ``dag``
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
    """Request to carry out the action of a dry run.

    :param id: the id that the dry run returned
    :param reason: the user's reason, which the audit log stores; some kinds of action require one
    :param name: for delete_pipeline: the name of the pipeline, with which the user confirms the deletion
    """

    id: str = Field(pattern="^[0-9a-f]{16}$")
    reason: str | None = Field(default=None, max_length=1000)
    name: str | None = Field(default=None, max_length=200)


class ActionOutcome(ApiModel):
    """Outcome of an action that a user has requested after its dry run.

    :param kind: kind of the action
    :param state: ``applied``: the action has taken effect; ``stored``: the ledger stores it until a run applies it
    :param number: number of the stored action; None if the action was applied
    :param actor: the user, as the audit log names them
    :param reason: the user's reason; None without one
    :param waits_for: lease of the run that applies the stored action; None if the action was applied, or no run holds
        the lease
    :param changes: values that the action has changed, at most 500; empty if the action was stored
    :param remark: sentence about consequences of the action that ``changes`` does not show; None if there is nothing to
        explain
    :param runs: ids of the DAGs that have planned the pipeline and that the user may trigger, to start a run now
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
    """A proposed action: a user's dry run on the page, or a proposal of a recovery DAG, which a user has to approve.

    :param id: id of the proposal
    :param kind: kind of the action
    :param by: origin of the proposal: the page (``page``) or a recovery DAG (``dag``)
    :param run: the task of the recovery DAG that made the proposal; None for a proposal of the page
    :param asked_by: the user who requested the action
    :param reason: the reason that the user gave with the proposal; None without one
    :param state: ``open``: not answered yet; ``approved`` or ``rejected``: by a user; ``carried_out``: the action was
        applied or stored; ``refused``: approved, but the action was no longer allowed; ``void``: replaced by a newer
        proposal of the same task
    :param created_at: when the proposal was made
    :param expires_at: time until which the proposal can be used
    :param answered_by: the user who approved or rejected the proposal; None without an answer
    :param answered_at: when the proposal was approved or rejected; None without an answer
    :param number: number of the stored action, if the action was stored for a run; else None
    :param refusal: explanation why the action was refused; None if it was not refused
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
    """The newest proposals of a pipeline.

    :param items: the proposals, newest first; at most 50
    """

    items: list[ProposalRow]
