"""Record which batches of a partition have a receipt of its newest epoch, as intervals of seqs.

The seqs are in the column ``receipted`` of the table ``partition``. The next run checks that the sink still has these
receipts, to detect a sink that has lost commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.ledger.store import bulk_sql

_MAX_RUNS = 1000
"""Maximum number of intervals stored per partition; if there are more, those with the highest seqs are stored."""


@dataclass(frozen=True, slots=True)
class ReceiptedBatches:
    """Batches of one partition and generation that have a receipt of the partition's newest epoch.

    :param epoch: the newest epoch under which a receipt was written
    :param generation: the partition's generation
    :param runs: seqs of the batches, as pairs of the first and last seq of each interval, both inclusive, in order
    """

    epoch: int
    generation: int
    runs: tuple[tuple[int, int], ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReceiptedBatches:
        """Restore the batches from the output of :meth:`to_json`."""
        return cls(data["epoch"], data["generation"], tuple((first, last) for first, last in data["runs"]))

    def to_json(self) -> dict[str, Any]:
        """Return the batches as a JSON-ready dict, which the ledger stores; :meth:`from_json` is the inverse."""
        return {"epoch": self.epoch, "generation": self.generation, "runs": [list(run) for run in self.runs]}

    @property
    def numbers(self) -> Iterable[int]:
        """The seq of every batch, in ascending order."""
        return (number for first, last in self.runs for number in range(first, last + 1))


def with_receipts(before: Mapping[str, Any] | None, generation: int, receipts: Iterable[Receipt]) -> Any:
    """Return the new value of a partition's column ``receipted`` after further receipts were settled.

    Receipts of other generations are left out, and so are those of all epochs but the newest.

    :param before: the value so far; None if there was no receipt
    :param generation: the partition's current generation
    :param receipts: the further receipts
    :return: the value in the form of :meth:`ReceiptedBatches.to_json`; ``before`` if there is no receipt to add
    """
    new_receipts = [receipt for receipt in receipts if receipt.key.generation == generation]
    known = ReceiptedBatches.from_json(before) if before else ReceiptedBatches(0, generation, ())
    if not new_receipts:
        return before
    epoch = max(known.epoch, *(receipt.epoch for receipt in new_receipts))
    same_epoch = (known.epoch, known.generation) == (epoch, generation)
    numbers = {receipt.key.seq for receipt in new_receipts if receipt.epoch == epoch}
    runs = bulk_sql.runs(numbers.union(known.numbers if same_epoch else ()))
    return ReceiptedBatches(epoch, generation, tuple(runs[-_MAX_RUNS:])).to_json()
