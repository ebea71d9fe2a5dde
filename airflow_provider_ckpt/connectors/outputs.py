"""Places that a sink writes to, by which a pipeline that would read its own output is recognised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files in a directory, with names ``<prefix>...<suffix>``.

    :param key: the pipeline's key that names the directory
    :param nested: whether they may also lie in its subdirectories
    """

    key: str
    directory: Path
    prefix: str = ""
    suffix: str = ""
    nested: bool = False

    def __str__(self) -> str:
        """The place, for a message."""
        return f"{self.key} ({self.directory})"


@dataclass(frozen=True, slots=True)
class WrittenTarget:
    """A table or topic.

    :param key: the pipeline's key that names it
    :param name: for messages
    :param connector: ``kafka`` or ``postgres``
    :param identity: as in :attr:`Claims.target`
    """

    key: str
    name: str
    connector: str
    identity: str

    def __str__(self) -> str:
        """The place, for a message."""
        return f"{self.key} ({self.name})"


Output = WrittenFiles | WrittenTarget


@runtime_checkable
class NamesOutputs(Protocol):
    """A sink, or dead letter store, that names what it writes to."""

    def outputs(self) -> Sequence[Output]:
        """Every place that exists, and every directory that it would make."""


@runtime_checkable
class ReadsOutputs(Protocol):
    """A source that recognises an output among what it reads."""

    def reads(self, output: Output) -> bool:
        """Return whether records written to an output would be read from this source."""
