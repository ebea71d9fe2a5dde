"""Describe the directories, tables and topics that a sink writes to.

A source compares them with the files, table or topic that it reads, to detect a pipeline that reads its own output.
"""

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
        """Return key and directory for a message, such as ``sink.path (/data/out)``."""
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
        """Return key and name for a message, such as ``sink.table (public.orders)``."""
        return f"{self.key} ({self.name})"


Output = WrittenFiles | WrittenTarget


@runtime_checkable
class NamesOutputs(Protocol):
    """A sink or dead letter store that describes the directories, tables and topics to which it writes."""

    def outputs(self) -> Sequence[Output]:
        """Return each directory, table and topic to which a run writes; tables and topics only if they exist."""


@runtime_checkable
class ReadsOutputs(Protocol):
    """A source that can detect that it would read the data that its pipeline's sink writes."""

    def reads(self, output: Output) -> bool:
        """Return whether this source would read records that a sink writes.

        :param output: a directory, table or topic to which the sink writes
        """
