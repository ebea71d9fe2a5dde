"""Commands for schema versions: record a version that a run has begun, and settle acceptances of changed columns."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.schema_version import SchemaVersion
from airflow_provider_ckpt.ledger.commands import stored_actions
from airflow_provider_ckpt.ledger.queries import schema_versions
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, events, tables
from airflow_provider_ckpt.ledger.types import Lease, StoredAction


class SchemaVersionCommands(Session):
    """Commands by which a run records a schema version, and settles the acceptances of changed columns."""

    def record_schema_version(self, lease: Lease, version: SchemaVersion) -> None:
        """Store a schema version, and an event ``schema_changed`` with the columns before and after it.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param version: the version
        :raises LedgerStateError: if the version's number does not follow that of the newest version of its partition
        """
        with self._command(lease, touch=()) as work:
            known = schema_versions.load(work.connection, lease.pipeline, version.partition)
            if version.number != len(known) + 1:
                raise LedgerStateError(
                    f"schema version {version.number} of partition {version.partition!r} does not follow version "
                    f"{len(known)}.",
                    pipeline=lease.pipeline,
                    position=version.position,
                    hint="Run again; the run reads the newest version first.",
                )
            document = version.to_json()
            row = {
                "pipeline": lease.pipeline, **document, "fingerprint": version.fingerprint, "actor": lease.owner,
                "epoch": lease.epoch, "at": work.now,
            }  # fmt: skip
            bulk_sql.insert(work.connection, tables.schema_version, [row])
            detail = {
                "version": version.number,
                "position": version.position,
                "before": known[-1].to_json()["columns"] if known else None,
                "after": document["columns"],
                "decision": document["decision"],
            }
            place = {"generation": version.generation, "partition": version.partition}
            event = events.event_row(lease, work.now, "schema_changed", detail) | place
            bulk_sql.insert(work.connection, tables.event, [event])

    def settle_acceptances(
        self, lease: Lease, *, version: str, source: str, refusal: Callable[[StoredAction], str | None]
    ) -> list[StoredAction]:
        """Apply or refuse the stored acceptances of changed columns, and return the acceptances that stay stored.

        An acceptance is applied if the newest schema version has the accepted columns. It is refused if neither this
        version nor the source has them, or if ``refusal`` returns a reason. Both are recorded as events. The others are
        returned, oldest first: the source has the accepted columns, and the run is to begin a version with them.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param version: digest of the columns of the newest version, see :attr:`.SchemaVersion.followed`
        :param source: digest of the columns that the source has now
        :param refusal: function that returns the reason why an acceptance of the source's columns is refused; None if
            it is not
        """
        with self._command(lease) as work:
            return stored_actions.settle_acceptances(work, version=version, source=source, refusal=refusal)
