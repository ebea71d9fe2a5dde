"""Base class of the models of a pipeline's section ``sink``; each connector has its own, with its keys."""

from __future__ import annotations

from airflow_provider_ckpt.config.connector_section import ConnectorSection


class SinkSection(ConnectorSection):
    """Sink of records: the keys of every type of sink, and what a sink of the type can do.

    :param type: type of the sink, such as ``postgres``
    :param connection: Airflow connection id
    """

    side = "sink"

    @property
    def upserts(self) -> bool:
        """True if a row replaces the target's row of the same key, so that the order of rows matters."""
        return False

    @property
    def adds_columns(self) -> bool:
        """True if columns that the rows have and the target lacks are added to the target."""
        return False

    @property
    def may_store_other_rows(self) -> bool:
        """True if the target may take more or fewer rows than are sent, so that their number proves nothing."""
        return False

    @property
    def may_lose_rows(self) -> bool:
        """True if the target may be emptied on purpose, so that missing rows are no loss."""
        return False

    @property
    def takes_raw_rows(self) -> bool:
        """True if rows of a source of the same connector may be copied raw (see ``Connector.raw_copy``)."""
        return True
