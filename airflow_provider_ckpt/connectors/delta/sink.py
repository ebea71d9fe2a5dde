"""Control side of the delta sink: check the table, raise the fence, and read receipts and other stored state.

A batch is delivered in two phases: a lane stages files (``writer.py``), and the process that started the Spark job
commits the files of all lanes at the end of the wave (``two_phase/committer.py``). The docstrings in ``two_phase/`` and
of ``fence.py`` explain why each batch takes effect exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.fence import fence
from airflow_provider_ckpt.connectors.delta.layout import DeltaLayout
from airflow_provider_ckpt.connectors.delta.table_version import DeltaVersion
from airflow_provider_ckpt.connectors.documents_beside_target import DocumentsBesideTarget
from airflow_provider_ckpt.connectors.outputs import Output, WrittenFiles
from airflow_provider_ckpt.connectors.sink_protocol import Claims, SinkContext
from airflow_provider_ckpt.connectors.storage.open_location import open_location
from airflow_provider_ckpt.connectors.two_phase.column_types import rows_may_lack_columns
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.damaged_files import describe_damage
from airflow_provider_ckpt.connectors.two_phase.layout import DATA_PREFIX
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.restored_target import batches_without_rows, find_loss
from airflow_provider_ckpt.connectors.two_phase.schema_changes import ChangesColumns
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, ReceiptsUnreadableError
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt


class DeltaSink(DocumentsBesideTarget, ChangesColumns):
    """Control side of a sink that writes to a Delta table in a directory or an object store; see :class:`Sink`.

    :param pipeline: ``sink.path`` names the table, which is created from the first batch if it does not exist
    :param connection: the Airflow connection of the object store; for a relative path, a connection of type ``fs``
        with the directory that the path starts from
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :raises ConfigError: if the path cannot be used, or the connection does not fit it
    """

    exactly_once = True

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        path = open_location(pipeline.sink.place, "sink.path", connection)
        self._pipeline = pipeline
        self._context = context
        self._adds_columns = pipeline.sink.adds_columns
        self._dead_letters_in_sink = pipeline.dead_letter_queue.in_sink
        self._layout = DeltaLayout(path, context.ledger, context.pipeline)
        super().__init__(self._layout)
        self._receipts = ReceiptChain(self._layout)
        self._reported_loss = False

    @property
    def location(self) -> str:
        """Address of the table, as ``delta:///data/t`` or ``delta+s3://bucket/t``; see :attr:`Sink.location`."""
        uri = self._layout.table.uri
        return f"delta+{uri}" if "://" in uri else f"delta://{uri}"

    def check(self) -> None:
        """Raise an error if the table is not writable or not supported, or a missing table's directory has other files.

        See :meth:`Sink.check`.

        :raises ConfigError: naming the obstacle
        :raises SinkError: if the table's log cannot be read
        """
        path = self._layout.table
        for directory in (path, self._layout.dead_letters.directory):
            directory.check_writable("sink.path")
        table = delta_table.load(path)
        if table is not None:
            delta_table.refuse_unsupported(table, path, replacing=self._pipeline.sink.replaces is not None)
            return
        foreign = sorted(name for name in path.names() if not name.startswith(("_", ".", DATA_PREFIX)))
        if foreign:
            raise ConfigError(
                f"sink.path: {path} is not a Delta table and holds other files, such as {foreign[0]}.",
                hint="Name a Delta table, or a directory that is empty or does not exist yet.",
            )

    def create_bookkeeping(self) -> None:
        """Do nothing: the first fence creates the bookkeeping directory; see :meth:`Sink.create_bookkeeping`."""

    def outputs(self) -> Sequence[Output]:
        """Return descriptions of the data files and the dead letter files; see :class:`NamesOutputs`.

        The caller compares them with the source's files, and refuses a source that would read them. All ``.parquet``
        files of the table count as written by this sink, since OPTIMIZE rewrites them under other names.
        """
        rows = WrittenFiles("sink.path", self._layout.table, suffix=".parquet")
        return (
            [rows, self._layout.dead_letters.output("dead_letter_queue.sink: same")]
            if self._dead_letters_in_sink
            else [rows]
        )

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise an error if columns differ only in case, or if the table lacks one and the sink adds no columns.

        Types are not compared here, but by each writer. See :meth:`Sink.check_columns`.

        :param columns: name and type of each column of the rows
        :raises ConfigError: naming the columns
        """
        names = Counter(name.lower() for name, _ in columns)
        duplicates = [name for name, _ in columns if names[name.lower()] > 1]
        if duplicates:
            raise ConfigError(
                f"columns {' and '.join(duplicates)} differ only in case, which Delta ignores",
                pipeline=self._context.pipeline,
                hint="Give one of them another name in transform.select, or leave it out.",
            )
        table = delta_table.load(self._layout.table)
        if table is None or self._adds_columns:
            return
        known = [field.name for field in table.schema().fields]
        unknown = [name for name, _ in columns if name not in known]
        if unknown:
            raise ConfigError(
                f"Delta table {self._layout.table} has no column {', '.join(unknown)}; it has {', '.join(known)}",
                pipeline=self._context.pipeline,
                hint="Name the table's columns in transform.select, or add them to the table.",
            )

    def claims(self) -> Claims:
        """Return this ledger's fence, all ledgers with a fence for the pipeline, the table's id, and evidence of loss.

        See :meth:`Sink.claims`.
        """
        version = self._version()
        setback = find_loss(version, self._receipts)
        self._reported_loss = setback is not None
        evidence = setback.message if setback is not None else None
        return Claims(version.epoch, self._layout.ledgers(), version.target, evidence)

    def fence(self, epoch: int) -> None:
        """Shut out all older epochs from the table; see :func:`~airflow_provider_ckpt.connectors.delta.fence.fence`.

        If :meth:`claims` or :meth:`receipts` of this object reported a loss of rows or receipts before, the caller
        continues only because a user accepted that loss, so the fence accepts it, too.

        :param epoch: epoch of the run
        """
        contention = CommitRetries(self._pipeline, str(self._layout.table))
        fence(self._layout, epoch, contention, accepting=self._reported_loss)

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield the receipts stored at the table that the ledger does not know yet; see :meth:`Sink.receipts`."""
        try:
            yield from self._receipts.unknown_to(self._version().head, known)
        except ReceiptsUnreadableError:
            self._reported_loss = True
            raise

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return those of the given batches that have no readable receipt, or whose rows a RESTORE removed.

        See :meth:`Sink.batches_without_receipt`.
        """
        return batches_without_rows(self._version(), self._receipts, keys)

    def target_rows(self, *, exact: bool = False) -> int | None:  # noqa: ARG002  # the log always has it
        """Return the table's number of rows, from the statistics in its log; 0 if there is no table.

        See :meth:`Sink.target_rows`.

        :param exact: not used, since the number in the log is exact
        :return: None if a file has no statistics
        """
        table = delta_table.load(self._layout.table)
        return delta_table.row_count(table, self._layout.table) if table is not None else 0

    def damaged_files(self) -> Iterator[str]:
        """Yield a sentence for each data file of the table's newest version that is missing or has a wrong size."""
        table = delta_table.load(self._layout.table)
        return describe_damage(delta_table.data_files(table, self._layout.table) if table is not None else ())

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def _version(self) -> DeltaVersion:
        table = delta_table.load(self._layout.table)
        return DeltaVersion(self._layout, table, rows_may_lack=rows_may_lack_columns(self._pipeline))
