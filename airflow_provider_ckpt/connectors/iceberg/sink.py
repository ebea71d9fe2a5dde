"""Iceberg sink, controlling half: what is in the table of this pipeline, and the fence.

A batch is delivered in two phases: a lane stages files (``writer.py``), the process that called Spark commits them
once a wave (``committer.py``). What makes that exactly once is told in ``two_phase/`` and in ``version.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.batch_content import KeptLetter
from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.iceberg.fence import fence
from airflow_provider_ckpt.connectors.iceberg.layout import ledgers
from airflow_provider_ckpt.connectors.iceberg.schema_check import files, refuse_unsupported, rows
from airflow_provider_ckpt.connectors.iceberg.table import TableAddress, local_place
from airflow_provider_ckpt.connectors.iceberg.version import IcebergVersion
from airflow_provider_ckpt.connectors.local.filesystem import check_writable
from airflow_provider_ckpt.connectors.outputs import Output, WrittenFiles
from airflow_provider_ckpt.connectors.protocols import Claims, Connection, SinkContext
from airflow_provider_ckpt.connectors.two_phase.contention import Contention
from airflow_provider_ckpt.connectors.two_phase.data_files import damaged
from airflow_provider_ckpt.connectors.two_phase.receipts import Receipts
from airflow_provider_ckpt.connectors.two_phase.set_back import find_setback, missing
from airflow_provider_ckpt.core.batch import BatchKey, Receipt
from airflow_provider_ckpt.core.dead_letters import AttemptKey, Replay
from airflow_provider_ckpt.core.errors import ConfigError, ReceiptsUnreadableError, SinkError
from airflow_provider_ckpt.core.receipts import Known


class IcebergSink:
    """An Iceberg table on a local or mounted file system, in any catalog; see :class:`Sink`.

    :param pipeline: ``sink.table`` names the table, which is created if it does not exist
    :param connection: the catalog
    """

    exactly_once = True

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._pipeline = pipeline
        self._context = context
        self._letters_here = pipeline.dead_letter_queue.here
        self._address = TableAddress(pipeline, connection, context)
        self._told = False

    @property
    def location(self) -> str:
        """See :attr:`Sink.location`."""
        return f"iceberg://{self._address.connection}/{self._address.name}"

    def check(self, *, create: bool = True) -> None:  # noqa: ARG002  # nothing is made before the first fence
        """Fail clearly if the catalog cannot be reached, or the table cannot be written."""
        version = self._version()
        if version is not None:
            refuse_unsupported(version.table)
            for place in (version.layout.table, version.layout.letters.directory):
                check_writable(place, "sink.table")
            return
        warehouse = self._address.catalog.properties.get("warehouse")
        if warehouse and "://" in warehouse:
            local_place(warehouse, "the warehouse")

    def outputs(self) -> Sequence[Output]:
        """See :class:`NamesOutputs`: data files, metadata and dead letters; none while there is no table."""
        version = self._version()
        if version is None:
            return ()
        table = version.layout.table
        data = version.table.location_provider().new_data_location("x.parquet")
        places = {table, local_place(data, self._address.name).parent}
        here: list[Output] = [WrittenFiles("sink.table", place, nested=True) for place in sorted(places)]
        return [*here, version.layout.letters.output("dead_letter_queue.sink: same")] if self._letters_here else here

    def fits(self, columns: Sequence[tuple[str, str]]) -> None:
        """See :meth:`Sink.fits`; while the table has no columns, everything does. Types are compared by each writer."""
        version = self._version()
        known = [field.name for field in version.schema.fields] if version is not None else []
        unknown = [name for name, _ in columns if name not in known]
        if known and unknown and not self._address.grows:
            raise ConfigError(
                f"Iceberg table {self._address.name} has no column {', '.join(unknown)}; it has {', '.join(known)}",
                pipeline=self._context.pipeline,
                hint="Name the table's columns in transform.select, or add them to the table.",
            )

    def claims(self) -> Claims:
        """This ledger's fence, every ledger that ever fenced this pipeline here, the table's UUID, and a rollback."""
        version = self._version()
        if version is None:
            return Claims()
        setback = find_setback(version, Receipts(version.layout))
        self._told = setback is not None
        told = setback.message if setback is not None else None
        return Claims(version.epoch, ledgers(version.table.properties, self._context.pipeline), version.target, told)

    def fence(self, epoch: int) -> None:
        """Shut out every older epoch; see ``fence.py``. What :meth:`claims` or :meth:`receipts` told is accepted."""
        contention = Contention(self._pipeline, f"the Iceberg table {self._address.name}")
        fence(self._address, epoch, contention, accepting=self._told)

    def receipts(self, known: Mapping[str, Known]) -> Iterator[Receipt]:
        """What the table's property names as receipted and is news."""
        version = self._version()
        if version is None:
            return
        try:
            yield from Receipts(version.layout).beyond(version.head, known)
        except ReceiptsUnreadableError:
            self._told = True
            raise

    def missing(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Those that the table does not name, or whose rows a rollback took away; see :meth:`Sink.missing`."""
        version = self._version()
        return missing(version, Receipts(version.layout), keys) if version is not None else keys

    def letters(self, sources: Iterable[AttemptKey]) -> Iterator[KeptLetter]:
        """The lines of each attempt's file; see :meth:`Sink.letters`."""
        version = self._version()
        if version is not None:
            for source in sources:
                yield from version.layout.letters.read(source)

    def keep_replay(self, partition: str, replay: Replay) -> None:
        """See :meth:`Sink.keep_replay`."""
        version = self._version()
        if version is None:
            raise SinkError(f"there is no Iceberg table {self._address.name} to keep a replay at.")
        version.layout.replays.keep(partition, replay)

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """See :meth:`Sink.replays`."""
        version = self._version()
        return version.layout.replays.read(partitions) if version is not None else {}

    def keep_files(self, files: FileList) -> None:
        """See :meth:`Sink.keep_files`."""
        version = self._version()
        if version is None:
            raise SinkError(f"there is no Iceberg table {self._address.name} to keep a list of source files at.")
        version.layout.lists.keep(files)

    def kept_files(self, first: int) -> Sequence[FileList]:
        """See :meth:`Sink.kept_files`."""
        version = self._version()
        return version.layout.lists.read(first) if version is not None else []

    def target_rows(self, *, exact: bool = False) -> int | None:  # noqa: ARG002  # the snapshot always tells
        """The table's rows by its newest snapshot's summary, or None if that does not tell."""
        version = self._version()
        return rows(version.table) if version is not None else 0

    def damaged_files(self) -> Iterator[str]:
        """See :class:`KeepsFiles`; of the newest snapshot, its manifests included."""
        version = self._version()
        return damaged(files(version.table)) if version is not None else iter(())

    def close(self) -> None:
        """Let go of the catalog's connections."""
        self._address.close()

    def _version(self) -> IcebergVersion | None:
        table = self._address.load()
        return IcebergVersion(self._address, table) if table is not None else None
