"""Follow changes of the source's columns: compare them after each planning, and begin a new schema version on a change.

If a column is new, or no longer refused, batches that were planned before are resolved first; after any other change
they are read under the new version. Then the target is changed, together with a receipt of the version in the sink, the
ledger records the version, and planning goes on. After a crash in between, the next run records the version from the
receipt.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.schema import column_use
from airflow_provider_ckpt.connectors.sink_protocol import SinkWithSchemaChanges, unwrapped
from airflow_provider_ckpt.connectors.source_protocol import SourceWithColumns
from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.column_change import describe
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.next_schema_version import NextVersion, StepKind
from airflow_provider_ckpt.core.schema_acceptance import acceptance_note, other_circumstances
from airflow_provider_ckpt.core.schema_change import Frozen, Waiting, decide, is_followed
from airflow_provider_ckpt.core.schema_version import ColumnState, SchemaVersion, VersionColumn, fingerprint
from airflow_provider_ckpt.spark.columns import RESERVED

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape
    from airflow_provider_ckpt.core.batch_key import BatchKey
    from airflow_provider_ckpt.core.schema_version import SourceColumn
    from airflow_provider_ckpt.ledger.types import PartitionRecord, StoredAction
    from airflow_provider_ckpt.replication.run.run import Run

log = logging.getLogger(__name__)

_TYPED_STEPS = frozenset({StepKind.ADD, StepKind.WIDEN})
"""Kinds of changes of the target that need the type of a column's values."""


class SchemaVersions:
    """Schema versions of one run of a pipeline that declares ``schema``.

    :param run: run in progress, whose lease is held and whose sink is fenced
    """

    def __init__(self, run: Run) -> None:
        assert isinstance(run.source, SourceWithColumns)
        sink = unwrapped(run.sink)
        assert isinstance(sink, SinkWithSchemaChanges)
        assert run.pipeline.schema_ is not None
        self._run = run
        self._source, self._sink = run.source, sink
        self._policy = run.pipeline.schema_.policy
        self._use = column_use(run.pipeline, RESERVED)
        self._current: SchemaVersion | None = None
        self._accepted = False

    @property
    def current(self) -> SchemaVersion:
        """The newest schema version, under which every batch without a verdict is read.

        :raises SourceError: if the source's columns have changed, and neither the policy nor a user allows it
        """
        if self._current is None:
            self.follow()
        assert self._current is not None
        return self._current

    @property
    def shape(self) -> RecordShape:
        """The columns that readers yield for batches of the newest version."""
        return self._source.version_shape(self.current)

    def follow(self) -> bool:
        """Read the source's columns, and begin a new schema version in the ledger if they have changed.

        :return: True if new batches may be planned; False if a change waits until all planned batches are resolved
        :raises SourceError: if neither the policy nor a user allows a change; nothing was planned
        """
        loaded = self._current is None
        current = self._current or self._load()
        self._current = current
        now = self._source.columns()
        if current is not None and loaded:
            self._acceptance(current, fingerprint(now))
        if current is not None and not self._accepted and is_followed(current.columns, now, self._policy):
            return True
        records = self._run.ledger.partitions(self._run.pipeline.name)
        if current is None:
            first = tuple(VersionColumn(column.name, column.number, column.type) for column in now)
            self._begin(NextVersion(first, (), ("the first version",)), records, ())
            return True
        return self._change(current, now, records)

    def _change(
        self, current: SchemaVersion, now: Sequence[SourceColumn], records: Mapping[str, PartitionRecord]
    ) -> bool:
        """Begin the schema version that the policy demands for changed columns; return whether planning may go on.

        :param current: the newest version
        :param now: columns of the source
        :param records: the ledger's partitions
        :raises SourceError: if neither the policy nor a user allows the change
        """
        unresolved = [batch.key for record in records.values() for batch in record.partition.blocking.values()]
        following = partial(
            decide, current.columns, now, self._policy, self._use, self._source.is_wider, unresolved=bool(unresolved)
        )
        decision, acceptance = following(), None
        refused = any(column.state is ColumnState.REFUSED for column in current.columns)
        if isinstance(decision, Frozen) or (decision is None and refused):
            acceptance = self._acceptance(current, fingerprint(now))
            decision = decision if acceptance is None else following(accepted=True)
        if isinstance(decision, Frozen):
            name = self._run.pipeline.name
            raise SourceError(
                f"the source's columns have changed since schema version {current.number}: "
                f"{'; '.join(decision.reasons)}.",
                pipeline=name,
                position=records[current.partition].partition.planned_end,
                hint="Nothing was sent since. Allow the change in the section schema of the declaration, accept it "
                f"once with `airflow ckpt schema accept {name}` (--dry-run shows it), or change the source's columns "
                "back; then run again.",
            )
        if isinstance(decision, Waiting):
            self._tell_waiting(decision, len(unresolved))
            return False
        if decision is not None:
            self._refuse_beside_unconfirmed(current)
            if acceptance is not None:
                sentence = acceptance_note(acceptance.actor, acceptance.reason)
                decision = replace(decision, decision=(*decision.decision, sentence))
            self._begin(decision, records, unresolved)
            now = self._source.columns()  # a user may have accepted other columns while the target was changed
            self._acceptance(self.current, fingerprint(now))
            return self._change(self.current, now, records)
        return True

    def _refuse_beside_unconfirmed(self, current: SchemaVersion) -> None:
        """Raise an error if a batch of this run was sent at most once and has no receipt.

        The lane of such a batch may still write, while a column of the target may have another meaning in the next
        version. The fence of the next run keeps the lane from writing.

        :param current: the newest version
        :raises SourceError: if there is such a batch; the error is recoverable, and nothing was changed
        """
        run = self._run
        if run.unconfirmed:
            raise SourceError(
                f"the source's columns have changed since schema version {current.number}, and receipts are missing "
                f"for {run.unconfirmed} of the batches that this run sent at most once.",
                pipeline=run.pipeline.name,
                recoverable=True,
                hint="Run again: the next run excludes lanes that may still write, and then follows the change.",
            )

    def _acceptance(self, current: SchemaVersion, source: str) -> StoredAction | None:
        """Return the stored action with which a user accepted the present columns of the source.

        A stored acceptance of columns that the version already has is marked as applied. An acceptance of other
        columns, or one that was given under another policy or schema version, is marked as refused.

        :param current: the newest schema version
        :param source: fingerprint of the columns of the source
        :return: the newest acceptance of the present columns; None if there is none, or the version has them already
        """
        run = self._run
        stored = run.ledger.stored_actions(run.pipeline.name)
        if not any(item.action.kind is ActionKind.ACCEPT_SCHEMA for item in stored):
            self._accepted = False
            return None
        versions = run.ledger.schema_versions(run.pipeline.name, current.partition)

        def refusal(item: StoredAction) -> str | None:
            note = acceptance_note(item.actor, item.reason)
            return other_circumstances(item.action, note, versions, self._policy)

        waiting = run.ledger.settle_acceptances(run.lease, version=current.followed, source=source, refusal=refusal)
        self._accepted = bool(waiting)
        return waiting[-1] if waiting else None

    def _tell_waiting(self, decision: Waiting, unresolved: int) -> None:
        """Log that a change of columns waits for planned batches, once per run, and add this to the run's summary.

        :param decision: the change
        :param unresolved: number of batches for which it waits
        """
        changes = "; ".join(map(describe, decision.changes))
        notice = f"{changes}. The {unresolved} batches that were planned before are resolved first"
        if notice not in self._run.summary.notices:
            log.warning("%s: %s", self._run.pipeline.name, notice)
            self._run.summary.notices.append(notice)

    def _begin(
        self, decision: NextVersion, records: Mapping[str, PartitionRecord], unresolved: Sequence[BatchKey]
    ) -> None:
        """Begin a schema version: change the target with a receipt, then record the version in the ledger.

        :param decision: columns of the version, and the changes of the target
        :param records: the ledger's partitions
        :param unresolved: planned batches without a verdict, which are read under this version from here on
        """
        run = self._run
        [partition] = [partition.id for partition in run.source.partitions()]
        item = records[partition].partition
        version = SchemaVersion(
            1 if self._current is None else self._current.number + 1,
            partition,
            item.generation,
            item.planned_end,
            decision.columns,
            decision.decision,
            unresolved,
        )
        types = dict(self._source.version_shape(version).columns)
        steps = [
            replace(step, spark_type=types[step.name]) if step.kind in _TYPED_STEPS else step for step in decision.steps
        ]
        with run.step("schema"):
            self._sink.apply_schema_version(run.epoch, version, steps)
            run.ledger.record_schema_version(run.lease, version)
        self._current = version
        for sentence in decision.decision:
            log.warning("%s: schema version %d: %s", run.pipeline.name, version.number, sentence)

    def _load(self) -> SchemaVersion | None:
        """Return the newest schema version; None if there is none.

        Versions that have a receipt in the sink and are missing in the ledger are recorded first.
        """
        run = self._run
        [partition] = [partition.id for partition in run.source.partitions()]
        known = run.ledger.schema_versions(run.pipeline.name, partition)
        stored = {found.number: found for found in self._sink.schema_versions() if found.partition == partition}
        while len(known) + 1 in stored:
            known.append(stored[len(known) + 1])
            run.ledger.record_schema_version(run.lease, known[-1])
        return known[-1] if known else None
