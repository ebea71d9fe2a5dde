"""Find, in a pipeline's receipts, the batches that a refresh or earlier abandoned refreshes have staged at a table.

The commit of a staged batch contains its receipt, which describes the files, but does not add the files to the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.two_phase.damaged_files import describe_damage
from airflow_provider_ckpt.connectors.two_phase.receipt_nodes import CommittedReceipt
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.replaceable_version import ReplaceableVersion
from airflow_provider_ckpt.connectors.two_phase.staging import StagedBatch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, SinkError
from airflow_provider_ckpt.core.receipt import Verdict
from airflow_provider_ckpt.core.refresh import missing_ranges


@dataclass(frozen=True, slots=True)
class StagedRefresh:
    """The receipts of one refresh at a version of the table, without the receipt of the batch that publishes it.

    :param entries: the receipts
    """

    entries: Sequence[CommittedReceipt]

    @classmethod
    def of(cls, version: ReplaceableVersion, receipts: ReceiptChain, key: BatchKey) -> StagedRefresh:
        """Return a refresh with its receipts, which are read from the table's receipt nodes.

        :param version: the newest version of the table
        :param receipts: the pipeline's receipts at the table
        :param key: the batch that publishes the refresh
        """
        entries: list[CommittedReceipt] = []
        for node in receipts.nodes(version.head):
            if (key.generation, key.partition) not in node.receipted:
                break
            entries += [entry for entry in node.entries if _is_staged(entry, key)]
        return cls(entries)

    @property
    def rows(self) -> int:
        """Number of staged rows, as the receipts count them."""
        return sum(entry.receipt.counts.delivered for entry in self.entries)

    @property
    def batches(self) -> list[StagedBatch]:
        """The staged batches, in the order of their keys."""
        return [StagedBatch.of_receipt(entry) for entry in sorted(self.entries, key=lambda entry: entry.receipt.key)]

    def defect(self, version: ReplaceableVersion, rows_end: int) -> str | None:
        """Return the reason why the refresh cannot be published; None if it is complete.

        The reason is a part of an error message, such as ``positions [3, 5) of it are not staged``.

        :param version: the newest version of the table
        :param rows_end: position after the last one that may contain rows
        :raises IoError: if the file system or object store fails
        """
        missing = missing_ranges([entry.receipt for entry in self.entries], rows_end)
        if missing:
            return f"positions {', '.join(map(str, missing[:3]))} of it are not staged"
        batches = self.batches
        files = [
            (path, file["size"])
            for batch in batches
            for path, file in zip(batch.data(version.layout.table), batch.files, strict=True)
        ]
        damage = next(describe_damage(sorted(files, key=lambda file: str(file[0]))), None)
        if damage is not None:
            return damage
        try:
            for batch in batches:
                version.refuse_misfit(batch)
        except (ConfigError, SinkError) as error:
            return error.message.rstrip(".")
        return None


def abandoned_batches(
    version: ReplaceableVersion, receipts: ReceiptChain, generation: int, abandoned_from: int | None
) -> list[StagedBatch]:
    """Return the batches that refreshes before a generation have staged, and that can never be published.

    A batch is returned if the ledger says that its refresh was abandoned, or the receipt of its refresh's publishing
    batch is ``void``. A missing receipt of the publishing batch is no proof: if the table was set back, this receipt
    may be lost although the published files are part of a newer version. The receipts are searched from the newest one
    back to the first whose rows are in the table.

    :param version: the newest version of the table
    :param receipts: the pipeline's receipts at the table
    :param generation: generation of the new refresh
    :param abandoned_from: first of the generations directly before it whose refresh was not published, as the ledger
        knows; None if there are none
    """
    found: list[StagedBatch] = []
    skipped: set[int] = set()
    for node in receipts.nodes(version.head):
        for entry in node.entries:
            own = entry.receipt.key.generation
            if entry.receipt.key.is_side_partition or own >= generation:
                continue
            if entry.staged is None:
                if entry.receipt.verdict is not Verdict.VOID:
                    return found
                skipped.add(own)
            elif entry.staged["files"] and (own in skipped or (abandoned_from is not None and own >= abandoned_from)):
                found.append(StagedBatch.of_receipt(entry))
    return found


def _is_staged(entry: CommittedReceipt, key: BatchKey) -> bool:
    own = entry.receipt.key
    return entry.staged is not None and (own.generation, own.partition) == (key.generation, key.partition)
