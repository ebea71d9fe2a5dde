"""Base class of the pydantic models that connectors have for the sections ``source`` and ``sink``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from airflow_provider_ckpt.config.fields import Section

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


class ConnectorSection(Section):
    """Section ``source`` or ``sink`` of a declaration; each type of source or sink has a model of its own.

    :param type: type of the source or sink: the name under which its connector is installed
    :param connection: Airflow connection id
    :cvar side: name of the section
    :cvar place_key: key whose value names the table, topic or path that is read or written, such as ``table``; messages
        and dead letters contain this value
    :cvar needs_order: whether batches of a partition must be delivered in order, as for Kafka sources and sinks
    """

    side: ClassVar[Literal["source", "sink"]]
    place_key: ClassVar[str]
    needs_order: ClassVar[bool] = False

    type: str
    connection: str | None = None

    @classmethod
    def of(cls, pipeline: Pipeline) -> Self:
        """Return the section ``source`` or ``sink`` of a pipeline as an instance of this class.

        :param pipeline: the declaration
        :raises TypeError: if the pipeline's source or sink is of another type
        """
        section = getattr(pipeline, cls.side)
        if not isinstance(section, cls):
            raise TypeError(f"the {cls.side} of pipeline {pipeline.name} is of type {section.type}, not {cls.__name__}")
        return section

    @property
    def place(self) -> str:
        """Name of the table, topic or path that is read or written: the value of :attr:`place_key`."""
        return str(getattr(self, self.place_key))

    def check(self, pipeline: Pipeline) -> None:
        """Raise an error if other sections of the pipeline contradict this one, although each is valid on its own.

        :raises ValueError: if there is a contradiction; the message names the keys, and what to write instead
        """
