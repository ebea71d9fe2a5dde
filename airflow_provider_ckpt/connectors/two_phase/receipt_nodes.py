"""Describe a node of a receipt chain and its file: the receipts of one commit, with a summary of all earlier ones.

``receipts.py`` explains the chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range, merge
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.schema_version import SchemaVersion

_FORMAT = 1
_MAX_RUNS = 100
"""Maximum number of ranges of seqs in a node's summary of one partition; only the highest ranges are stored."""


@dataclass(frozen=True, slots=True)
class CommittedReceipt:
    """A batch's receipt, with the name of the batch's staged files and the table version that added them.

    :param receipt: the receipt
    :param file: name of the staged files that were committed with the receipt (:attr:`StagedBatch.name`); None if the
        batch has no rows
    :param version: version of the table that the commit created; 0 in a receipt that is to be committed
    :param staged: files and columns of a batch of a refresh (:attr:`StagedBatch.for_refresh`), which the commit did not
        add to the table; None if it added them
    """

    receipt: Receipt
    file: str | None
    version: int = 0
    staged: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ReceiptedBatches:
    """Summary of the batches of one generation and partition that have a receipt in a node or in any node before it.

    :param seq: highest seq of these batches
    :param end: highest range end of these batches
    :param runs: seqs of these batches, as ranges of consecutive numbers; only the highest ranges are stored, so a batch
        with a lower seq may have a receipt, too
    """

    seq: int
    end: int
    runs: tuple[Range, ...]

    def with_receipt(self, seq: int, end: int) -> ReceiptedBatches:
        """Return a summary of these batches and one additional batch.

        :param seq: seq of the additional batch
        :param end: range end of the additional batch
        """
        runs = merge([*self.runs, Range(seq, seq + 1)])
        return ReceiptedBatches(max(self.seq, seq), max(self.end, end), tuple(runs[-_MAX_RUNS:]))

    def contains(self, seq: int) -> bool:
        """Return whether the stored ranges contain a seq.

        True means that the batch of that seq has a receipt; False does not exclude a receipt.

        :param seq: the seq
        """
        return any(run.start <= seq < run.end for run in self.runs)


NO_BATCHES = ReceiptedBatches(-1, 0, ())
"""Summary of a partition without receipts."""


@dataclass(frozen=True, slots=True)
class ReceiptNode:
    """Receipts of one commit: a link of the chain, stored in one JSON file.

    :param previous: number of the node before this one; None if the chain ends here
    :param version: version of the table that the commit created, 0 if not recorded
    :param entries: receipts of the commit
    :param receipted: the node's summary: batches with a receipt in this node or any before it, by generation and
        partition
    :param cut: number of an older node that cannot be read: the chain ends at the node that follows it; None if no node
        is known to be unreadable
    :param schema: schema version whose changes the commit made to the table's columns; None if it made none
    :param schema_before: number of the newest node before this one that has a schema version; None if there is none
    """

    previous: int | None
    version: int
    entries: Sequence[CommittedReceipt]
    receipted: Mapping[tuple[int, str], ReceiptedBatches]
    cut: int | None = None
    schema: SchemaVersion | None = None
    schema_before: int | None = None

    def may_contain(self, key: BatchKey) -> bool:
        """Return False if a batch certainly has no receipt in this node or an earlier one; True if it may have one.

        :param key: key of the batch
        """
        return key.seq <= self.receipted.get((key.generation, key.partition), NO_BATCHES).seq

    def contains(self, key: BatchKey) -> bool:
        """Return True if a batch certainly has a receipt in this node or an earlier one; False if it may have none.

        :param key: key of the batch
        """
        return self.receipted.get((key.generation, key.partition), NO_BATCHES).contains(key.seq)


def node_document(
    previous: int | None,
    version: int,
    entries: Sequence[CommittedReceipt],
    reach: Mapping[tuple[int, str], ReceiptedBatches],
    cut: int | None,
    schema: SchemaVersion | None = None,
    schema_before: int | None = None,
) -> dict[str, Any]:
    """Return a node as a JSON-ready dict; :func:`parse_node` is the inverse.

    :param previous: number of the node that the chain continues with; None to end it here
    :param version: version of the table that the commit creates
    :param entries: receipts of the node
    :param reach: the node's summary, by generation and partition
    :param cut: number of an older node that cannot be read, so that the chain ends at the node that follows it; None if
        no such node is known
    :param schema: schema version whose changes the commit makes to the table's columns; None if it makes none
    :param schema_before: number of the newest node before this one that has a schema version; None if there is none
    """
    return {
        "format": _FORMAT,
        "previous": previous,
        "version": version,
        "receipts": [
            entry.receipt.to_json() | {"file": entry.file} | ({} if entry.staged is None else {"staged": entry.staged})
            for entry in entries
        ],
        "reach": [
            [*where, how_far.seq, how_far.end, [[run.start, run.end] for run in how_far.runs]]
            for where, how_far in sorted(reach.items())
        ],
        "cut": cut,
        "schema": None if schema is None else schema.to_json(),
        "schema_before": schema_before,
    }


def parse_node(document: Mapping[str, Any], number: int) -> ReceiptNode:
    """Return the receipt node that a JSON document describes.

    :param document: the parsed JSON
    :param number: number of the node
    :raises ValueError: if the node names a predecessor that is not an earlier node
    :raises TypeError: if a number is not an integer; other parsing errors are possible if the document is damaged
    """
    previous, version, cut = document["previous"], document.get("version", 0), document.get("cut")
    schema, schema_before = document.get("schema"), document.get("schema_before")
    if any(type(found) is not int for found in (version, previous or 0, cut or 0, schema_before or 0)):
        raise TypeError("the number of a receipt file or of a table version is not an integer")
    for before in (previous, schema_before):
        if before is not None and not 0 <= before < number:
            raise ValueError(f"receipt file {number} names file {before} as a predecessor, which is not an earlier one")
    return ReceiptNode(
        previous,
        version,
        [
            CommittedReceipt(Receipt.from_json(item), item["file"], version, item.get("staged"))
            for item in document["receipts"]
        ],
        {
            (int(generation), str(partition)): _parse_receipted(*how_far)
            for generation, partition, *how_far in document["reach"]
        },
        cut,
        None if schema is None else SchemaVersion.from_json(schema),
        schema_before,
    )


def _parse_receipted(seq: int, end: int, runs: Sequence[Sequence[int]] | None = None) -> ReceiptedBatches:
    """Return the batches of one partition that have a receipt, from the summary of the partition in a node's JSON.

    :param seq: highest seq with a receipt
    :param end: highest range end of these batches
    :param runs: half-open ranges of the seqs that have a receipt; None in an early format, which named ``seq`` alone
    """
    found = [Range(seq, seq + 1)] if runs is None else [Range(int(start), int(after)) for start, after in runs]
    return ReceiptedBatches(int(seq), int(end), tuple(found))
