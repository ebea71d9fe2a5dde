"""Define users' actions on a pipeline: their kinds, and which need a reason, the sink's receipts or a new epoch.

``apply_action.py`` applies an action to the state of a pipeline (semantics, sections 1, 3 and 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import DeadLetters
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.ranges import Range


class ActionKind(StrEnum):
    """Kinds of actions by which users change a pipeline; the audit log records each action under its kind.

    - ``hold``, ``release``, ``skip`` and ``cancel`` change single batches.
    - ``drain``, ``stop``, ``force_stop`` and ``resume`` change the phase of the pipeline.
    - ``rewind``, ``replay`` and ``recover`` read parts of the source again.
    - ``replay_dead_letters`` and ``discard_dead_letters`` change dead letters.
    - ``resend_to_sink`` and ``keep_sink`` accept a sink that has changed: the first sends again the ranges that the
      sink has lost, the second continues from the checkpoint. ``move`` lets the next run deliver to another sink.
    - ``accept_schema`` lets the next run follow a change of the source's columns that the policy does not allow.
    - ``adopt`` continues with the receipts that another ledger has in the sink.
    - ``break_lease``, ``collect_garbage`` and ``delete_pipeline`` change what the ledger stores of the pipeline; their
      events are ``lease_broken``, ``collection_begun`` and ``collected``, and ``forgotten``.
    """

    HOLD = "hold"
    RELEASE = "release"
    SKIP = "skip"
    CANCEL = "cancel"
    DRAIN = "drain"
    STOP = "stop"
    FORCE_STOP = "force_stop"
    RESUME = "resume"
    REWIND = "rewind"
    REPLAY = "replay"
    RECOVER = "recover"
    REPLAY_DEAD_LETTERS = "replay_dead_letters"
    DISCARD_DEAD_LETTERS = "discard_dead_letters"
    RESEND_TO_SINK = "resend_to_sink"
    KEEP_SINK = "keep_sink"
    MOVE = "move"
    ACCEPT_SCHEMA = "accept_schema"
    ADOPT = "adopt"
    BREAK_LEASE = "break_lease"
    COLLECT_GARBAGE = "collect_garbage"
    DELETE_PIPELINE = "delete_pipeline"


NEED_NEW_EPOCH = frozenset({ActionKind.FORCE_STOP, ActionKind.REWIND})
"""Actions that only the holder of a new epoch may apply, after it has fenced the sink and read its receipts."""

NEED_RECEIPTS_READ = NEED_NEW_EPOCH | {ActionKind.REPLAY, ActionKind.RECOVER, ActionKind.REPLAY_DEAD_LETTERS}
"""Actions that a run applies only after it has read the sink's receipts.

All of them except force stop start a generation. A ledger that was restored from a backup may have lost generations
whose receipts are in the sink. If their numbers were used again, those receipts would be taken for receipts of the new
batches, which would then never be sent.
"""

PHASE_ACTIONS = frozenset({ActionKind.DRAIN, ActionKind.STOP, ActionKind.FORCE_STOP, ActionKind.RESUME})
"""Actions that change the pipeline's phase; on a pipeline that is in that phase already, they only record an event."""

DEAD_LETTER_ACTIONS = frozenset({ActionKind.REPLAY_DEAD_LETTERS, ActionKind.DISCARD_DEAD_LETTERS})
"""Actions on dead letters; an action changes only selected dead letters that are still parked."""

SINK_ACTIONS = frozenset({ActionKind.RESEND_TO_SINK, ActionKind.KEEP_SINK, ActionKind.MOVE})
"""Actions that accept or leave a changed sink.

Such an action is never stored for a later run. The command of the user itself acquires the lease, compares the sink
with the state that the ledger expects, fences the sink, reconciles, and applies the action.
"""

NEED_COLUMNS = frozenset({ActionKind.ACCEPT_SCHEMA})
"""Actions that need the source's present columns, so that only a run applies them.

The run compares the source's columns with those that the user accepted.
"""

HAVE_OWN_COMMAND = frozenset(
    {ActionKind.ADOPT, ActionKind.BREAK_LEASE, ActionKind.COLLECT_GARBAGE, ActionKind.DELETE_PIPELINE}
)
"""Actions for each of which the ledger has a command of its own.

Such an action is never stored for a run. It changes no batch, position or dead letter; deleting a pipeline and
collecting garbage delete rows.
"""

NEED_REASON = SINK_ACTIONS | {
    ActionKind.ACCEPT_SCHEMA,
    ActionKind.ADOPT,
    ActionKind.BREAK_LEASE,
    ActionKind.DELETE_PIPELINE,
    ActionKind.SKIP,
    ActionKind.DISCARD_DEAD_LETTERS,
    ActionKind.REWIND,
    ActionKind.FORCE_STOP,
}
"""Actions that require a reason.

Each of these actions gives records up, sends records again, changes the target, stops a run or deletes a pipeline.
"""


@dataclass(frozen=True, slots=True)
class Action:
    """One action on a pipeline, with its arguments. Each kind uses some of the fields; the others keep their defaults.

    Below, "resend" stands for ``resend_to_sink``.

    :param kind: the kind of action
    :param batches: for hold, release, skip and cancel: the batches to change; a release without any releases all held
        batches. For actions on the sink: batches to hold, because the sink may contain their rows without a receipt
    :param positions: for rewind and resend: by partition, the first position to read again
    :param ranges: for replay, recover and resend: pairs of a source partition and a range of it to read
    :param dead_letters: for actions on dead letters: the dead letters, oldest first; for resend: the dead letters whose
        replay the sink has lost
    :param newest_first: for a replay of dead letters: whether the newest is sent first
    :param unreachable: for move: whether the previous sink can no longer be read to find out which batches it has
        received
    :param with_replayed: for replay: whether records are also read again if a replay of their dead letters has
        delivered them
    :param from_receipts: for resend: whether the fields above were derived from the sink's receipts; they are then
        derived again under the lease, and the action is refused if the result differs
    :param states: for recover: by source partition, the new values of the state that the source connector stores in the
        ledger, with which the next planning compares the source
    :param cancelled_replays: for rewind and resend: ids of side partitions that replay dead letters whose records are
        read again; their undelivered batches are skipped
    :param fingerprint: for accept_schema: digest of the source's columns that the user has seen
    :param changes: for accept_schema: the changes of the columns that the user has seen, one sentence for each column
    :param version: for accept_schema: number of the newest schema version that the user has seen
    :param policy: for accept_schema: digest of the section ``schema`` that the user has seen
    :param ledger_id: for adopt: id of the ledger whose receipts are adopted
    :param epoch: for break lease and delete: epoch of the lease when the action was made; the action is refused if
        another run has acquired the lease since
    :param older_than: for garbage collection: time before which rows may be deleted
    """

    kind: ActionKind
    batches: tuple[BatchKey, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[tuple[str, Range], ...] = ()
    dead_letters: tuple[DeadLetters, ...] = ()
    newest_first: bool = False
    unreachable: bool = False
    with_replayed: bool = False
    from_receipts: bool = False
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cancelled_replays: tuple[str, ...] = ()
    fingerprint: str = ""
    changes: tuple[str, ...] = ()
    version: int | None = None
    policy: str = ""
    ledger_id: str | None = None
    epoch: int | None = None
    older_than: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the action as a JSON-ready dict, which the ledger stores; :meth:`from_json` is the inverse."""
        return {
            "kind": self.kind.value,
            "batches": [key.to_json() for key in self.batches],
            "positions": dict(self.positions),
            "ranges": [[name, span.start, span.end] for name, span in self.ranges],
            "dead_letters": [dead_letters.to_json() for dead_letters in self.dead_letters],
            "newest_first": self.newest_first,
            "unreachable": self.unreachable,
            "with_replayed": self.with_replayed,
            **({"from_receipts": True} if self.from_receipts else {}),
            **({"states": {name: dict(state) for name, state in self.states.items()}} if self.states else {}),
            **({"cancelled_replays": list(self.cancelled_replays)} if self.cancelled_replays else {}),
            **({"fingerprint": self.fingerprint, "changes": list(self.changes)} if self.fingerprint else {}),
            **({"version": self.version, "policy": self.policy} if self.policy else {}),
            **({"ledger_id": self.ledger_id} if self.ledger_id is not None else {}),
            **({"epoch": self.epoch} if self.epoch is not None else {}),
            **({"older_than": self.older_than.isoformat()} if self.older_than is not None else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Action:
        """Restore an action from the output of :meth:`to_json`."""
        return cls(
            ActionKind(data["kind"]),
            tuple(BatchKey.from_json(key) for key in data["batches"]),
            dict(data["positions"]),
            tuple((name, Range(start, end)) for name, start, end in data["ranges"]),
            tuple(DeadLetters.from_json(item) for item in data.get("dead_letters", ())),
            data.get("newest_first", False),
            data.get("unreachable", False),
            data.get("with_replayed", False),
            data.get("from_receipts", False),
            data.get("states", {}),
            tuple(data.get("cancelled_replays", ())),
            data.get("fingerprint", ""),
            tuple(data.get("changes", ())),
            data.get("version"),
            data.get("policy", ""),
            data.get("ledger_id"),
            data.get("epoch"),
            datetime.fromisoformat(data["older_than"]) if "older_than" in data else None,
        )


def refuse_own_command(kind: ActionKind, pipeline: str) -> None:
    """Raise an error if an action has a command of its own: it is then neither stored for a run nor applied to batches.

    :param kind: the kind of action
    :param pipeline: name of the pipeline, for the error message
    :raises LedgerStateError: if it is one of :data:`HAVE_OWN_COMMAND`
    """
    if kind in HAVE_OWN_COMMAND:
        raise LedgerStateError(
            f"{kind.replace('_', ' ')} is a command of its own: it is neither stored for a run nor applied to batches.",
            pipeline=pipeline,
        )


def require_reason(kind: str, actor: str | None, reason: str | None, *, required: bool) -> None:
    """Raise an error if the actor of an action is missing, or its reason although the action requires one.

    :param kind: the kind of action, for the error message
    :param actor: the user who requests the action; None or blank if missing
    :param reason: the user's reason; None or blank if missing
    :param required: whether this action requires a reason
    :raises ConfigError: if the actor or a required reason is missing or blank
    """
    name = kind.replace("_", " ")
    if not (actor or "").strip():
        raise ConfigError(f"{name}: actor is missing.", hint="Every action names the user who requests it.")
    if required and not (reason or "").strip():
        raise ConfigError(f"{name}: reason is missing.", hint="Give a reason; the audit log stores it.")
