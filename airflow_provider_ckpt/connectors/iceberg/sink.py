"""Control side of the iceberg sink: check the table, raise the fence, and read receipts and other stored state.

A batch is delivered in two phases: a lane stages files (``writer.py``), and the process that started the Spark job
commits the files of all lanes at the end of the wave (``two_phase/committer.py``). The docstrings in ``two_phase/`` and
of ``table_version.py`` explain why each batch takes effect exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.batch_content import StoredDeadLetter
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.iceberg.fence import fence
from airflow_provider_ckpt.connectors.iceberg.layout import ledgers
from airflow_provider_ckpt.connectors.iceberg.storage import to_location
from airflow_provider_ckpt.connectors.iceberg.table import (
    TableAddress,
    data_files,
    refuse_unsupported,
    row_count,
)
from airflow_provider_ckpt.connectors.iceberg.table_version import IcebergVersion
from airflow_provider_ckpt.connectors.outputs import Output, WrittenFiles
from airflow_provider_ckpt.connectors.sink_protocol import Claims, SinkContext
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.damaged_files import describe_damage
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.restored_target import batches_without_rows, find_loss
from airflow_provider_ckpt.connectors.two_phase.schema_changes import ChangesColumns
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ConfigError, ReceiptsUnreadableError, SinkError
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.replay_content import Replay


class IcebergSink(ChangesColumns):
    """Control side of a sink that writes to an Iceberg table in any catalog; see :class:`Sink`.

    The table's files are in a local or mounted file system, or in an object store.

    :param pipeline: ``sink.table`` names the table, which is created if it does not exist
    :param connection: the Airflow connection of the catalog
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :raises ConfigError: if there is no connection, or the connection names no catalog
    """

    exactly_once = True

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._pipeline = pipeline
        self._context = context
        self._dead_letters_in_sink = pipeline.dead_letter_queue.in_sink
        self._address = TableAddress(pipeline, connection, context)
        self._reported_loss = False

    @property
    def location(self) -> str:
        """Address of the table, as ``iceberg://<connection>/<table>``; see :attr:`Sink.location`."""
        return f"iceberg://{self._address.connection}/{self._address.name}"

    def check(self) -> None:
        """Raise an error if the catalog cannot be reached, or the table is not writable or not supported.

        See :meth:`Sink.check`.

        :raises ConfigError: if the table is not writable or not supported, or the catalog's properties are not valid
        :raises SinkError: if the catalog cannot be reached; or, with ``mode: replace``, if the number of rows is not
            known, because rows are marked as deleted or the manifests cannot be read
        """
        version = self._version()
        if version is not None:
            refuse_unsupported(version.table)
            if self._pipeline.sink.replaces is not None:
                version.row_count()
            for directory in (version.layout.table, version.layout.dead_letters.directory):
                directory.check_writable("sink.table")
            return
        warehouse = self._address.catalog.properties.get("warehouse")
        if warehouse and "://" in warehouse:
            to_location(warehouse, "the warehouse", self._address.catalog.properties)

    def create_bookkeeping(self) -> None:
        """Do nothing: the first fence creates the bookkeeping directory; see :meth:`Sink.create_bookkeeping`."""

    def outputs(self) -> Sequence[Output]:
        """Return the directories into which the sink writes data, metadata and dead letters; empty without a table.

        Dead letters are included only if their store is the sink.

        See :class:`NamesOutputs`.
        """
        version = self._version()
        if version is None:
            return ()
        table = version.layout.table
        data = version.table.location_provider().new_data_location("x.parquet")
        directories = {str(place): place for place in (table, table.resolve(data).parent)}
        outputs: list[Output] = [
            WrittenFiles("sink.table", directory, nested=True) for _, directory in sorted(directories.items())
        ]
        return (
            [*outputs, version.layout.dead_letters.output("dead_letter_queue.sink: same")]
            if self._dead_letters_in_sink
            else outputs
        )

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise an error if rows have a column that the table lacks and that will not be added to it.

        A table without columns accepts all columns. The types are not compared here, but by each writer. See
        :meth:`Sink.check_columns`.

        :param columns: name and type of each column of the rows
        :raises ConfigError: naming the columns
        """
        version = self._version()
        known = [field.name for field in version.schema.fields] if version is not None else []
        unknown = [name for name, _ in columns if name not in known]
        if known and unknown and not self._address.adds_columns:
            raise ConfigError(
                f"Iceberg table {self._address.name} has no column {', '.join(unknown)}; it has {', '.join(known)}",
                pipeline=self._context.pipeline,
                hint="Name the table's columns in transform.select, or add them to the table.",
            )

    def claims(self) -> Claims:
        """Return this ledger's fence, all ledgers with a fence for the pipeline, the table's UUID, evidence of loss.

        The evidence is a sentence about rows or receipts that are gone. Without a table, all results are empty.

        See :meth:`Sink.claims`.
        """
        version = self._version()
        if version is None:
            return Claims()
        setback = find_loss(version, ReceiptChain(version.layout))
        self._reported_loss = setback is not None
        evidence = setback.message if setback is not None else None
        return Claims(
            version.epoch, ledgers(version.table.properties, self._context.pipeline), version.target, evidence
        )

    def fence(self, epoch: int) -> None:
        """Shut out all older epochs from the table; see :func:`~airflow_provider_ckpt.connectors.iceberg.fence.fence`.

        If :meth:`claims` or :meth:`receipts` of this object reported a loss of rows or receipts before, the caller
        continues only because a user accepted that loss, so the fence accepts it, too.

        :param epoch: epoch of the run
        """
        contention = CommitRetries(self._pipeline, f"the Iceberg table {self._address.name}")
        fence(self._address, epoch, contention, accepting=self._reported_loss)

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield the receipts stored at the table that the ledger does not know yet; see :meth:`Sink.receipts`."""
        version = self._version()
        if version is None:
            return
        try:
            yield from ReceiptChain(version.layout).unknown_to(version.head, known)
        except ReceiptsUnreadableError:
            self._reported_loss = True
            raise

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return those of the given batches that have no readable receipt, or whose rows a rollback removed.

        See :meth:`Sink.batches_without_receipt`.
        """
        version = self._version()
        return batches_without_rows(version, ReceiptChain(version.layout), keys) if version is not None else keys

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of the given attempts, read from one file for each; see :meth:`Sink.dead_letters`."""
        version = self._version()
        if version is not None:
            for source in sources:
                yield from version.layout.dead_letters.read(source)

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store in the table's directory the list of dead letters that a side partition sends again.

        See :meth:`Sink.store_replay`.

        :param partition: id of the side partition
        :param replay: the list of dead letters
        :raises SinkError: if there is no table
        """
        version = self._version()
        if version is None:
            raise SinkError(
                f"the replay cannot be stored: there is no Iceberg table {self._address.name}.",
                hint="Restore the table, or run again: the next run names the commands to choose from.",
            )
        version.layout.replays.write(partition, replay)

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the replays of the given side partitions, from the table's directory; see :meth:`Sink.replays`.

        :param partitions: ids of the side partitions
        :return: the replays by id of their side partition; without those that are not stored
        """
        version = self._version()
        return version.layout.replays.read(partitions) if version is not None else {}

    def store_file_list(self, files: FileList) -> None:
        """Store a list of discovered source files in the table's directory; see :meth:`Sink.store_file_list`.

        :param files: the list
        :raises SinkError: if there is no table
        """
        version = self._version()
        if version is None:
            raise SinkError(
                f"the list of source files cannot be stored: there is no Iceberg table {self._address.name}.",
                hint="Restore the table, or run again: the next run names the commands to choose from.",
            )
        version.layout.lists.write(files)

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """Return the stored lists of source files from an ordinal on; see :meth:`Sink.stored_file_lists`.

        :param first: ordinal of a source file; lists that begin before it are left out
        """
        version = self._version()
        return version.layout.lists.read(first) if version is not None else []

    def target_rows(self, *, exact: bool = False) -> int | None:  # noqa: ARG002  # the snapshot always has it
        """Return the table's number of rows, from its newest snapshot's summary; 0 if there is no snapshot or table.

        See :meth:`Sink.target_rows`.

        :param exact: not used, since the summary's number is exact
        :return: None if the summary has no total, or rows are marked as deleted
        """
        version = self._version()
        return row_count(version.table) if version is not None else 0

    def damaged_files(self) -> Iterator[str]:
        """Yield a sentence for each file or manifest of the newest snapshot that is missing or has a wrong size."""
        version = self._version()
        return describe_damage(data_files(version.table, version.layout.table)) if version is not None else iter(())

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._address.close()

    def _version(self) -> IcebergVersion | None:
        table = self._address.load()
        return IcebergVersion(self._address, table) if table is not None else None
