"""Base class of the models of a declaration's section ``source``; each connector has a model with keys of its own."""

from __future__ import annotations

from typing import ClassVar, Literal

from airflow_provider_ckpt.config.connector_section import ConnectorSection
from airflow_provider_ckpt.config.fields import WholeNumber


class SourceSection(ConnectorSection):
    """Section ``source``: the keys that every type of source has, and properties of the type that other code needs.

    :param type: type of the source, such as ``postgres``
    :param connection: Airflow connection id
    :param start_from: where the very first run starts: ``earliest``, ``latest``, or a position
    :cvar ordered_by_cursor: whether positions are values of a cursor column, so that new rows may appear at positions
        that were read already
    :cvar discovers_files: whether the source's records lie in files that planning discovers; the list of files is
        stored in the ledger and in the sink
    :cvar spark_reader: name of the module that makes Spark itself read waves, such as
        ``airflow_provider_ckpt.spark.jdbc``; None if lanes read with the connector's reader
    :cvar reports_columns: whether the source reports its columns (:class:`~.source_protocol.SourceWithColumns`), which
        the section ``schema`` needs
    """

    side = "source"
    ordered_by_cursor: ClassVar[bool] = False
    discovers_files: ClassVar[bool] = False
    spark_reader: ClassVar[str | None] = None
    reports_columns: ClassVar[bool] = False

    start_from: Literal["earliest", "latest"] | WholeNumber = "earliest"

    @property
    def is_full(self) -> bool:
        """True if each run reads all records again, so that the sink must replace all rows of the target."""
        return False

    @property
    def has_columns(self) -> bool:
        """True if the source's records have typed columns; False if they are raw bytes, which ``transform.decode``
        decodes.
        """
        return True

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns to read; empty for all."""
        return ()

    @property
    def position_columns(self) -> tuple[str, ...]:
        """Names of the cursor column and the key columns, which order or identify records."""
        return ()

    @property
    def may_lack_columns(self) -> bool:
        """True if a record may lack a column, as in Parquet files; ``transform.schema`` then declares the columns.

        Text values of such a source are also checked, since they need not be valid UTF-8.
        """
        return False

    @property
    def read_by_spark(self) -> bool:
        """True if Spark itself reads the source."""
        return self.spark_reader is not None

    @property
    def spark_jars(self) -> tuple[str, ...]:
        """Paths of jars, such as a JDBC driver, that Spark needs to read the source."""
        return ()
