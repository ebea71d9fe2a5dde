"""Base class of the models of a declaration's section ``sink``; each connector has a model with keys of its own."""

from __future__ import annotations

import re
from typing import ClassVar

from airflow_provider_ckpt.config.characters import for_message
from airflow_provider_ckpt.config.connector_section import ConnectorSection
from airflow_provider_ckpt.core.refresh import ReplaceLimits

_PLAIN_NAME = re.compile(r"[\w$-]+(?:\.[\w$-]+)*")


class SinkSection(ConnectorSection):
    """Section ``sink``: the keys that every type of sink has, and properties of the type that other code needs.

    :param type: type of the sink, such as ``postgres``
    :param connection: Airflow connection id
    :cvar changes_columns: whether the sink can change the target's columns
        (:class:`~.sink_protocol.SinkWithSchemaChanges`), which the section ``schema`` needs
    """

    side = "sink"
    changes_columns: ClassVar[bool] = False

    @classmethod
    def name_in_place(cls, name: str) -> str:
        """Return the name of a schema or table as it is written in the value of ``place_key``, quoted where necessary.

        This class accepts letters, digits, ``_``, ``-``, ``$`` and single dots between them, and quotes nothing.

        :raises ValueError: if the name cannot be a part of the value, since the value would then name another place
        """
        if not _PLAIN_NAME.fullmatch(name):
            raise ValueError(
                f"{for_message(name)!r} cannot be a part of {cls.place_key}: it has other characters than "
                "letters, digits, '_', '-', '$' and single dots between them"
            )
        return name

    @property
    def place_parts(self) -> tuple[str, ...]:
        """The parts of the target's name, such as schema and table, without quotes.

        They are equal for two spellings of one target.
        """
        return (self.place,)

    @property
    def upserts(self) -> bool:
        """True if a row replaces the target's row of the same key, so that the order of rows matters."""
        return False

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Names of the target's key columns; empty if rows have no key."""
        return ()

    @property
    def replaces(self) -> ReplaceLimits | None:
        """Limits beyond which a refresh waits for a user's approval before it replaces the target's rows.

        None for a sink that does not replace all rows of the target in each run.
        """
        return None

    @property
    def creates_target(self) -> bool:
        """True if a missing target is created with the source's columns (:class:`~.SinkThatCreatesTarget`)."""
        return False

    @property
    def adds_columns(self) -> bool:
        """True if columns that the rows have and the target lacks are added to the target."""
        return False

    @property
    def may_store_other_rows(self) -> bool:
        """True if the target may store more or fewer rows than are sent, for example because of a database trigger.

        The number of rows in the target is then not compared with the number of sent rows.
        """
        return False

    @property
    def may_lose_rows(self) -> bool:
        """True if the target may be emptied on purpose, so that missing rows do not count as lost."""
        return False

    @property
    def takes_raw_rows(self) -> bool:
        """True if rows from a source of the same connector may be copied as raw bytes (see ``Connector.raw_copy``)."""
        return True
