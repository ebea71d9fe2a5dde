"""Model of the keys that section ``sink`` has for every sink that writes to a database table: table, mode and key."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from airflow_provider_ckpt.config.fields import ColumnNames, RequiredText
from airflow_provider_ckpt.connectors.replacing_sink_section import ReplacingSinkSection
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext


class TableSinkSection(ReplacingSinkSection):
    """Section ``sink`` of a sink that writes to a table of a database; the connectors' own sections extend it.

    Its keys ``mode`` and ``replace`` are those of :class:`.ReplacingSinkSection`.

    :param connection: Airflow connection id of the database
    :param table: ``schema.table`` or ``table``
    :param key: the columns that identify a row of the target, for ``mode: upsert``; empty for the other modes
    :param rows_may_differ: whether the target may take more or fewer rows than are sent, because a trigger, a rule or a
        policy of the target adds or removes some
    :param may_be_emptied: whether rows of the target may be removed on purpose, so that missing rows are no loss
    """

    place_key: ClassVar[str] = "table"

    connection: RequiredText
    table: RequiredText
    key: ColumnNames = ()
    rows_may_differ: bool = False
    may_be_emptied: bool = False

    @model_validator(mode="after")
    def _mode_and_key(self) -> Self:
        if self.upserts and not self.key:
            raise ValueError("mode: upsert needs key, the columns that identify a row")
        if self.key and not self.upserts:
            raise ValueError(
                "key requires mode: upsert, since append never replaces rows; write that, or leave key out"
            )
        return self

    def staging_table(self, generation: int, context: SinkContext) -> str | None:
        """Return the name of the table beside the target in which a refresh stages its rows; None if it has no table.

        :param generation: generation of the refresh
        :param context: ids of the ledger and the pipeline
        """
        del generation, context
        return None

    @property
    def upserts(self) -> bool:
        """True if rows replace target rows of the same key (``mode: upsert``); see :attr:`SinkSection.upserts`."""
        return self.mode == "upsert"

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row of the target (``key``); see :attr:`SinkSection.key_columns`."""
        return self.key

    @property
    def may_store_other_rows(self) -> bool:
        """True if the target may take more or fewer rows than are sent; see :attr:`SinkSection.may_store_other_rows`.

        This is so with ``rows_may_differ: true``.
        """
        return self.rows_may_differ

    @property
    def may_lose_rows(self) -> bool:
        """True if rows of the target may disappear without a loss of data; see :attr:`SinkSection.may_lose_rows`.

        This is so with ``may_be_emptied: true`` and with ``mode: replace``.
        """
        return self.may_be_emptied or self.mode == "replace"
