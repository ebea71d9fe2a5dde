"""Model of the ledger's record of the sink, by which a run notices that the sink was restored; the core decides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.changed_sink import ExpectedSinkState, SinkState, differences
from airflow_provider_ckpt.core.invariants import Violation
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.ledger.store.receipted_batches import ReceiptedBatches, with_receipts

TOLD = "SinkLossIsTold"
_PLACE = "the target"


class Memory(NamedTuple):
    """The memory, for one partition, with the copy of the sink that may be put back.

    :param raised: the newest epoch whose fence was raised
    :param numbers: what ``ledger/store/receipted_batches.py`` keeps of the newest epoch's receipts
    :param settled: every receipt that the ledger has taken, for the property alone
    :param fence: the epoch of the sink's fence when it was copied; -1 before that, -2 after it was put back
    :param sink: its receipts then
    """

    raised: int = 0
    numbers: ReceiptedBatches | None = None
    settled: frozenset[Receipt] = frozenset()
    fence: int = -1
    sink: frozenset[Receipt] = frozenset()

    def taking(self, partition: Partition, receipts: Iterable[Receipt]) -> Memory:
        """The memory after the ledger has taken receipts.

        :param partition: as it is afterwards
        """
        news = [receipt for receipt in receipts if receipt not in self.settled]
        before = self.numbers.to_json() if self.numbers else None
        document = with_receipts(before, partition.generation, news)
        numbers = ReceiptedBatches.from_json(document) if document else None
        return self._replace(numbers=numbers, settled=self.settled.union(news))

    def admits(self, partition: Partition, fence: int, sink: frozenset[Receipt]) -> bool:
        """Return whether a run continues, by the core's decision.

        The receipts that it asks for are those of ``ledger/queries/sink_state.py``.
        """
        held = {receipt.key for receipt in sink}
        missing = [key for key in self._expected(partition) if key not in held]
        known = ExpectedSinkState(self.raised, _PLACE, _PLACE, may_have_rows=True)
        return not differences(known, SinkState(fence, _PLACE, _PLACE, missing=missing))

    def lost(self, sink: frozenset[Receipt]) -> list[Violation]:
        """The receipts that the ledger has taken and the sink does not hold."""
        return [
            Violation(TOLD, receipt.key.partition, f"{receipt.key} was delivered and is lost, and a run goes on")
            for receipt in self.settled - sink
        ]

    def _expected(self, partition: Partition) -> set[BatchKey]:
        expected = {batch.key for batch in partition.batches.values() if batch.receipt is not None}
        if self.numbers is not None:
            current = self.numbers.epoch == self.raised
            numbers = self.numbers.numbers if current else [self.numbers.runs[-1][1]]
            expected |= {BatchKey(self.numbers.generation, partition.id, number) for number in numbers}
        return expected
