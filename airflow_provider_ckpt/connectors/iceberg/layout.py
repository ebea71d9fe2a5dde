"""Name the table properties in which the iceberg sink stores its state, and the paths of its files at the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.two_phase.layout import TableLayout

_PREFIX = "ckpt:"
_EPOCH = ":epoch"


@dataclass(frozen=True, slots=True)
class IcebergLayout(TableLayout):
    """Names of the table properties, and paths of the files, of one pipeline and ledger at one Iceberg table.

    Its parameters are those of :class:`TableLayout`.
    """

    @property
    def epoch_property(self) -> str:
        """Name of the table property that stores the epoch of the fence; every commit sets it."""
        return f"{_PREFIX}{self.ledger}:{self.pipeline}{_EPOCH}"

    @property
    def head_property(self) -> str:
        """Name of the table property that stores the number of the newest receipt node."""
        return f"{_PREFIX}{self.ledger}:{self.pipeline}:receipts"


def ledgers(properties: Iterable[str], pipeline: str) -> frozenset[str]:
    """Return the ids of all ledgers that ever raised the fence of a pipeline at an Iceberg table.

    :param properties: names of the table's properties
    :param pipeline: name of the pipeline
    """
    end = f":{pipeline}{_EPOCH}"
    found = (name for name in properties if name.startswith(_PREFIX) and name.endswith(end))
    return frozenset(name[len(_PREFIX) : -len(end)] for name in found)
