"""Receipts of a two-phase sink: a chain of immutable nodes whose head is stored in the table.

A table can store one number for each pipeline (Delta: a ``txn`` action; Iceberg: a table property), but a receipt also
has a range, counts and an attempt. So each commit first writes a *node* durably under a new number: its receipts, and
the number of the node before it, as read from the version of the table that it builds on. The commit then makes that
number the head, in the same atomic step that adds the data files. This has three consequences:

- Only the head decides. A node counts if and only if it is reachable from the head; a node whose commit failed or lost
  the race is unreachable and can be ignored, whatever it contains.
- Every receipt can always be read back, and the bookkeeping in the table itself does not grow.
- The receipts name single batches, not a position, so a batch that was skipped in the ledger leaves no gap.

A node also has, per generation and partition, which batches it and all nodes before it receipted, and their highest
range end. So a search stops where older nodes cannot matter, and an old batch can be looked up without reading the
chain that far back. Numbers grow: the count of commits in the upper 31 bits, random bits in the lower 32.

A node whose file is missing or damaged breaks the chain, and all earlier nodes are lost with it. Once a user has
accepted that, a new node states where the chain is cut, and nothing is searched beyond the cut.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.local.filesystem import io_error, write_durably
from airflow_provider_ckpt.connectors.two_phase.layout import TableLayout
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ReceiptsUnreadableError
from airflow_provider_ckpt.core.ranges import Range, merge
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt

_FORMAT = 1
_RANDOM_BITS = 32
_MAX_RUNS = 100
"""Maximum number of runs of receipted batches in a node for each partition; of more runs, the highest are stored."""
_MAX_NAMED = 3
"""Maximum number of partitions that an error names."""


@dataclass(frozen=True, slots=True)
class CommittedReceipt:
    """A receipt and its staged files.

    :param receipt: the receipt
    :param file: name of what was staged and committed with it (:attr:`Staged.name`), if anything
    :param version: version of the table that its commit created; 0 until it is read back
    """

    receipt: Receipt
    file: str | None
    version: int = 0


@dataclass(frozen=True, slots=True)
class ReceiptedBatches:
    """Batches of one generation and partition that a node and all nodes before it receipted.

    :param seq: highest seq
    :param end: highest range end
    :param runs: receipted batches, as runs of their seqs; batches outside of the runs may have a receipt, too
    """

    seq: int
    end: int
    runs: tuple[Range, ...]

    def with_receipt(self, seq: int, end: int) -> ReceiptedBatches:
        """Return the reach after one more receipt."""
        runs = merge([*self.runs, Range(seq, seq + 1)])
        return ReceiptedBatches(max(self.seq, seq), max(self.end, end), tuple(runs[-_MAX_RUNS:]))

    def contains(self, seq: int) -> bool:
        """Return whether a batch is known to have a receipt."""
        return any(run.start <= seq < run.end for run in self.runs)


_NO_BATCHES = ReceiptedBatches(-1, 0, ())


@dataclass(frozen=True, slots=True)
class ReceiptNode:
    """Receipts of one commit.

    :param previous: number of the node before it
    :param version: version of the table that its commit created, 0 if not recorded
    :param entries: its receipts
    :param receipted: batches that this node and all before it receipted, by generation and partition
    :param cut: number of an older node at which the chain ends, since that node cannot be read
    """

    previous: int | None
    version: int
    entries: Sequence[CommittedReceipt]
    receipted: Mapping[tuple[int, str], ReceiptedBatches]
    cut: int | None = None

    def may_contain(self, key: BatchKey) -> bool:
        """Return whether a batch may have a receipt in this node or an earlier one."""
        return key.seq <= self.receipted.get((key.generation, key.partition), _NO_BATCHES).seq

    def contains(self, key: BatchKey) -> bool:
        """Return whether a batch is known to have a receipt in this node or an earlier one."""
        return self.receipted.get((key.generation, key.partition), _NO_BATCHES).contains(key.seq)


class ReceiptChain:
    """Reader and writer of the chain of one pipeline; the caller passes its head, read from a version of the table."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._newest: tuple[int, ReceiptNode] | None = None

    def append(self, previous: int | None, entries: Sequence[CommittedReceipt], *, version: int) -> int:
        """Write a node durably and return its number, to be committed as the new head.

        :param previous: head at the version that the commit builds on
        :param entries: receipts of the node
        :param version: version of the table that the commit creates
        :raises OSError: if the file system fails; no file is left behind
        """
        reach = dict(self._node(previous).receipted) if previous is not None else {}
        for entry in entries:
            key, end = entry.receipt.key, entry.receipt.range.end
            reach[key.generation, key.partition] = reach.get((key.generation, key.partition), _NO_BATCHES).with_receipt(
                key.seq, end
            )
        return self._write(previous, previous=previous, version=version, entries=entries, reach=reach)

    def start_new_chain(self, head: int, lost: int, *, version: int) -> int:
        """Write a node durably whose chain ends before an unreadable one, and return its number.

        The receipts of newer nodes, which can be read, stay part of the chain.

        :param head: the current head
        :param lost: number of the node that cannot be read
        :param version: version of the table that the commit creates
        :raises OSError: if the file system fails
        """
        if head == lost:
            return self._write(head, previous=None, version=version)
        return self._write(head, previous=head, version=version, reach=self._node(head).receipted, cut=lost)

    def version_of(self, number: int) -> int:
        """Return the version of the table that the commit of a node created, 0 if not recorded.

        :raises ReceiptsUnreadableError: if the node is missing or damaged
        """
        return self._node(number).version

    def first_unreadable(self, head: int | None) -> int | None:
        """Return the number of the newest node that is missing or damaged; None if the whole chain can be read."""
        number = head
        try:
            for node in self._walk(head):
                number = node.previous
        except ReceiptsUnreadableError:
            return number
        return None

    def find(self, head: int | None, keys: Iterable[BatchKey]) -> Iterator[CommittedReceipt]:
        """Yield the entries of those batches that have one, newest first.

        :raises ReceiptsUnreadableError: if a node is missing or damaged, after the entries of newer nodes
        """
        wanted = set(keys)
        for node in self._walk(head):
            wanted = {key for key in wanted if node.may_contain(key)}
            if not wanted:
                break
            for entry in node.entries:
                if entry.receipt.key in wanted:
                    wanted.discard(entry.receipt.key)
                    yield entry

    def receipted(self, head: int | None, keys: Iterable[BatchKey]) -> set[BatchKey]:
        """Return the batches that have a receipt, as far as nodes can be read.

        Nodes of the newest epoch are read. Older ones are answered from a node's summary, so that a batch of an idle
        partition costs nothing more.
        """
        wanted, found, newest = set(keys), set[BatchKey](), 0
        try:
            for node in self._walk(head):
                wanted = {key for key in wanted if node.may_contain(key)}
                if not wanted:
                    break
                epoch = max((entry.receipt.epoch for entry in node.entries), default=newest)
                newest = max(newest, epoch)
                receipted = {entry.receipt.key for entry in node.entries}
                now = {key for key in wanted if key in receipted or (epoch < newest and node.contains(key))}
                found |= now
                wanted -= now
        except ReceiptsUnreadableError:
            return found
        return found

    def unknown_to(self, head: int | None, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield the receipts that the ledger does not know yet, in the order of their keys.

        :raises ReceiptsUnreadableError: if a node is missing or damaged, after the receipts of newer nodes
        """

        def is_known(generation: int, partition: str, end: int) -> bool:
            return partition in known and known[partition].covers(generation, end)

        found: list[Receipt] = []
        unreadable: ReceiptsUnreadableError | None = None
        try:
            for node in self._walk(head):
                if all(is_known(generation, name, reach.end) for (generation, name), reach in node.receipted.items()):
                    break
                receipts = (entry.receipt for entry in node.entries)
                found += [r for r in receipts if not is_known(r.key.generation, r.key.partition, r.range.end)]
        except ReceiptsUnreadableError as error:
            unreadable = error
        yield from sorted(found, key=lambda receipt: receipt.key)
        if unreadable is not None:
            raise unreadable

    def _write(
        self,
        before: int | None,
        *,
        previous: int | None,
        version: int,
        entries: Sequence[CommittedReceipt] = (),
        reach: Mapping[tuple[int, str], ReceiptedBatches] | None = None,
        cut: int | None = None,
    ) -> int:
        """Write a node durably and return its number, which is greater than that of the head before."""
        document = {
            "format": _FORMAT,
            "previous": previous,
            "version": version,
            "receipts": [entry.receipt.to_json() | {"file": entry.file} for entry in entries],
            "reach": [
                [*where, how_far.seq, how_far.end, [[run.start, run.end] for run in how_far.runs]]
                for where, how_far in sorted((reach or {}).items())
            ],
            "cut": cut,
        }
        count = ((before or 0) >> _RANDOM_BITS) + 1
        number = (count << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        write_durably(self._layout.node(number), json.dumps(document).encode(), exclusive=True)
        return number

    def _walk(self, head: int | None) -> Iterator[ReceiptNode]:
        cuts: set[int | None] = {None}
        newer: ReceiptNode | None = None
        while head not in cuts and head is not None:
            newer = self._node(head, newer)
            yield newer
            cuts.add(newer.cut)
            head = newer.previous

    def _node(self, number: int, newer: ReceiptNode | None = None) -> ReceiptNode:
        """Read a node.

        :param number: number of the node
        :param newer: the node after it, which tells what is lost if this one cannot be read
        """
        if self._newest is not None and self._newest[0] == number:
            return self._newest[1]
        path = self._layout.node(number)
        try:
            node = _parse_node(json.loads(path.read_bytes()), number)
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
            lost = _describe_lost(newer) if newer is not None else "all receipts"
            raise ReceiptsUnreadableError(
                f"the receipts that the table {self._layout.table} names are missing or damaged: {path}. Without that "
                f"file {lost} cannot be read.",
                pipeline=self._layout.pipeline,
                hint="Restore that file from a backup, or move `_ckpt` to where the table is now. If it is lost, "
                f"continue from the ledger's checkpoint with `airflow ckpt accept-sink {self._layout.pipeline} "
                '--keep --reason "..."`.',
            ) from error
        except OSError as error:
            raise io_error(error, f"read {path}") from error
        if self._newest is None or number > self._newest[0]:
            self._newest = (number, node)
        return node


def _parse_node(document: Mapping[str, Any], number: int) -> ReceiptNode:
    """Parse a node.

    :raises ValueError: if it is damaged; possibly another parsing error instead
    """
    previous, version, cut = document["previous"], document.get("version", 0), document.get("cut")
    if any(type(found) is not int for found in (version, previous or 0, cut or 0)):
        raise TypeError("the number of a node or version is not an integer")
    if previous is not None and not 0 <= previous < number:
        raise ValueError("a node names a later one as its predecessor")
    return ReceiptNode(
        previous,
        version,
        [CommittedReceipt(Receipt.from_json(item), item["file"], version) for item in document["receipts"]],
        {
            (int(generation), str(partition)): _parse_receipted(*how_far)
            for generation, partition, *how_far in document["reach"]
        },
        cut,
    )


def _parse_receipted(seq: int, end: int, runs: Sequence[Sequence[int]] | None = None) -> ReceiptedBatches:
    """Parse what a node records about a partition; an early format had no runs."""
    found = [Range(seq, seq + 1)] if runs is None else [Range(int(start), int(after)) for start, after in runs]
    return ReceiptedBatches(int(seq), int(end), tuple(found))


def _describe_lost(newer: ReceiptNode) -> str:
    """Return a description of the receipts before a node, for the error message."""
    parts = []
    for (generation, partition), reach in sorted(newer.receipted.items()):
        own = {entry.receipt.key for entry in newer.entries}
        seq = reach.seq
        while BatchKey(generation, partition, seq) in own:
            seq -= 1
        if seq >= 0:
            parts.append(f"{BatchKey(generation, partition, seq)}")
    more = f" and of {len(parts) - _MAX_NAMED} more partitions" if len(parts) > _MAX_NAMED else ""
    return f"the receipts up to {', '.join(parts[:_MAX_NAMED])}{more}" if parts else "older receipts"
