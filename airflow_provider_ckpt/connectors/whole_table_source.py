"""Base class of all sources with ``mode: full``: methods about the start position and late records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.source_plan import Start
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.ranges import Range

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.record_positions import PositionDigest


class WholeTableSource:
    """Base class with the methods of a :class:`~.source_protocol.Source` about the start position and late records.

    A refresh reads all rows as of one moment, so ``source.start_from`` has no effect, and no record can be late.
    """

    _pipeline: str

    def start(self, partition: str, start_from: str | int) -> Start:  # noqa: ARG002 - a refresh reads all rows
        """Return position 0 for any ``start_from``; see :meth:`Source.start`."""
        return Start(0)

    def may_have_late_records(self) -> bool:
        """Return False: what a refresh reads never changes; see :meth:`Source.may_have_late_records`."""
        return False

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:  # noqa: ARG002
        """Return None, since no row can appear in a range that a refresh has read; see :meth:`Source.digests`."""
        return None

    def positions(self, partition: str, span: Range) -> Sequence[int]:  # noqa: ARG002
        """Raise SourceError, since :meth:`digests` returns no digests to compare with; see :meth:`Source.positions`."""
        raise SourceError("a refresh has no positions to compare", pipeline=self._pipeline, position=span.start)
