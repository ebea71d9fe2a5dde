"""Places that a sink writes to. A source compares itself with them, to detect a pipeline that reads its own output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from airflow_provider_ckpt.connectors.storage.location import Location


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files that a sink writes in one directory, with names ``<prefix>...<suffix>``.

    :param key: key of the pipeline's declaration that names the directory, for messages
    :param directory: directory of the files
    :param prefix: start of each file name
    :param suffix: end of each file name
    :param nested: whether the files may also lie in subdirectories
    """

    key: str
    directory: Location
    prefix: str = ""
    suffix: str = ""
    nested: bool = False

    def __str__(self) -> str:
        """Return key and directory, for a message."""
        return f"{self.key} ({self.directory})"


@dataclass(frozen=True, slots=True)
class WrittenTarget:
    """A table or topic that a sink writes to.

    :param key: key of the pipeline's declaration that names the table or topic, for messages
    :param name: name of the table or topic, for messages
    :param system: system of the table or topic, such as ``postgresql``; identities are compared within one system
    :param identity: identity of the table or topic, as in :attr:`~.sink_protocol.Claims.target`; it changes if the
        table or topic is recreated
    """

    key: str
    name: str
    system: str
    identity: str

    def __str__(self) -> str:
        """Return key and name, for a message."""
        return f"{self.key} ({self.name})"


Output = WrittenFiles | WrittenTarget


@runtime_checkable
class NamesOutputs(Protocol):
    """A sink, or dead letter store, that names the places it writes to."""

    def outputs(self) -> Sequence[Output]:
        """Return every existing place to which a run writes, and every directory that a run would create."""


@runtime_checkable
class ReadsOutputs(Protocol):
    """A source that detects whether it would read what a sink writes."""

    def reads(self, output: Output) -> bool:
        """Return whether this source would read the records that a sink writes to the given place.

        :param output: a place that :meth:`NamesOutputs.outputs` returned
        """
