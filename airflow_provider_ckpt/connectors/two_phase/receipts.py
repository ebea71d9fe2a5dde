"""Receipts of a two-phase sink: a chain of immutable nodes whose head the table names.

A table has room for one number a pipeline (Delta: a ``txn`` action; Iceberg: a table property), but a receipt also has
a range, counts and an attempt. So each commit first writes a *node*, durably, under a number that was never used: its
receipts, and the number of the node before it, as read from the very version of the table that it builds on. The
commit then makes that number the head, in the same atomic step that adds the data files. So:

- The head alone arbitrates. A node counts if and only if the head reaches it; a node whose commit was lost, or lost
  the race, is reached by nobody and can be ignored, whatever it says and however many attempts wrote one.
- Every receipt can always be read back, and what the table itself holds of us does not grow.
- It says which batches are done, not up to where: a batch skipped in the ledger leaves no hole to get stuck on.

A node also sums up, per generation and partition, which batches it and all nodes before it receipted, and the highest
range end of these. So a search stops where nothing older can matter, and whether an old batch has a receipt is known
without reading the chain as far back. Numbers grow: commits so far in the upper 31 bits, chance in the lower 32.

A node whose file is gone or damaged breaks the chain, and with it goes what lies before it. Once a person has accepted
that, a node says where the chain is cut, and nothing is looked for beyond the cut any more.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.local.filesystem import io_error, write_durably
from airflow_provider_ckpt.connectors.two_phase.layout import Layout
from airflow_provider_ckpt.core.batch import BatchKey, Receipt
from airflow_provider_ckpt.core.errors import ReceiptsUnreadableError
from airflow_provider_ckpt.core.ranges import Range, merge
from airflow_provider_ckpt.core.receipts import Known

_FORMAT = 1
_CHANCE_BITS = 32
_RUNS = 100
"""Runs of receipted batches that a node sums up of each partition; of more, the highest."""
_NAMED = 3
"""Partitions that an error names."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A receipt.

    :param file: the name of what was staged and became part of the table with it (:attr:`Staged.name`), if anything
    :param version: the version of the table that its commit made; 0 until it is read back
    """

    receipt: Receipt
    file: str | None
    version: int = 0


@dataclass(frozen=True, slots=True)
class Reach:
    """The batches of one generation and partition that a node and all before it receipted.

    :param seq: the highest seq
    :param end: the highest range end
    :param runs: receipted batches, as runs of their seqs; a batch in none of them may have a receipt all the same
    """

    seq: int
    end: int
    runs: tuple[Range, ...]

    def with_(self, seq: int, end: int) -> Reach:
        """The reach after one more receipt."""
        runs = merge([*self.runs, Range(seq, seq + 1)])
        return Reach(max(self.seq, seq), max(self.end, end), tuple(runs[-_RUNS:]))

    def names(self, seq: int) -> bool:
        """Whether a batch is known to have a receipt."""
        return any(run.start <= seq < run.end for run in self.runs)


_NOWHERE = Reach(-1, 0, ())


@dataclass(frozen=True, slots=True)
class Node:
    """What one commit receipted.

    :param previous: the number of the node before it
    :param version: the version of the table that its commit made, 0 if it does not say
    :param reach: by generation and partition, what this node and all before it receipted
    :param cut: the number of an older node at which the chain ends, since that one cannot be read
    """

    previous: int | None
    version: int
    entries: Sequence[Entry]
    reach: Mapping[tuple[int, str], Reach]
    cut: int | None = None

    def reaches(self, key: BatchKey) -> bool:
        """Whether a batch may have a receipt in this node or one before it."""
        return key.seq <= self.reach.get((key.generation, key.partition), _NOWHERE).seq

    def names(self, key: BatchKey) -> bool:
        """Whether a batch is known to have a receipt in this node or one before it."""
        return self.reach.get((key.generation, key.partition), _NOWHERE).names(key.seq)


class Receipts:
    """Reads and extends the chain of one pipeline; the caller says what its head is, from a version of the table."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._newest: tuple[int, Node] | None = None

    def append(self, previous: int | None, entries: Sequence[Entry], *, version: int) -> int:
        """Write a node durably and give its number, to be committed as the new head.

        :param previous: the head at the version that the commit builds on
        :param version: the version of the table that the commit makes
        :raises OSError: if the file system fails; then nothing is left behind
        """
        reach = dict(self._node(previous).reach) if previous is not None else {}
        for entry in entries:
            key, end = entry.receipt.key, entry.receipt.range.end
            reach[key.generation, key.partition] = reach.get((key.generation, key.partition), _NOWHERE).with_(
                key.seq, end
            )
        return self._write(previous, previous=previous, version=version, entries=entries, reach=reach)

    def begin_anew(self, head: int, lost: int, *, version: int) -> int:
        """Write a node durably whose chain ends before one that cannot be read; give its number.

        The receipts of newer nodes, which can be read, stay part of the chain.

        :param head: the head so far
        :param lost: the number of the node that cannot be read
        :param version: the version of the table that the commit makes
        :raises OSError: if the file system fails
        """
        if head == lost:
            return self._write(head, previous=None, version=version)
        return self._write(head, previous=head, version=version, reach=self._node(head).reach, cut=lost)

    def version_of(self, number: int) -> int:
        """The version of the table that the commit of a node made, 0 if it does not say.

        :raises ReceiptsUnreadableError: if the node is missing or damaged
        """
        return self._node(number).version

    def first_unreadable(self, head: int | None) -> int | None:
        """The number of the newest node that is missing or damaged; None if the whole chain can be read."""
        number = head
        try:
            for node in self._walk(head):
                number = node.previous
        except ReceiptsUnreadableError:
            return number
        return None

    def find(self, head: int | None, keys: Iterable[BatchKey]) -> Iterator[Entry]:
        """The entries of those batches that have one, the newest first.

        :raises ReceiptsUnreadableError: if a node is missing or damaged; newer entries have been given then
        """
        wanted = set(keys)
        for node in self._walk(head):
            wanted = {key for key in wanted if node.reaches(key)}
            if not wanted:
                break
            for entry in node.entries:
                if entry.receipt.key in wanted:
                    wanted.discard(entry.receipt.key)
                    yield entry

    def held(self, head: int | None, keys: Iterable[BatchKey]) -> set[BatchKey]:
        """Those of these batches that have a receipt, as far as nodes can be read.

        Nodes are read as far back as the newest epoch goes. What is older is answered by what a node sums up, so a
        batch of a partition that was idle since costs nothing more.
        """
        wanted, found, newest = set(keys), set[BatchKey](), 0
        try:
            for node in self._walk(head):
                wanted = {key for key in wanted if node.reaches(key)}
                if not wanted:
                    break
                epoch = max((entry.receipt.epoch for entry in node.entries), default=newest)
                newest = max(newest, epoch)
                receipted = {entry.receipt.key for entry in node.entries}
                now = {key for key in wanted if key in receipted or (epoch < newest and node.names(key))}
                found |= now
                wanted -= now
        except ReceiptsUnreadableError:
            return found
        return found

    def beyond(self, head: int | None, known: Mapping[str, Known]) -> Iterator[Receipt]:
        """Receipts that are news, in the order of their keys.

        :raises ReceiptsUnreadableError: if a node is missing or damaged; those of newer nodes have been given then
        """

        def is_known(generation: int, partition: str, end: int) -> bool:
            return partition in known and known[partition].covers(generation, end)

        found: list[Receipt] = []
        unreadable: ReceiptsUnreadableError | None = None
        try:
            for node in self._walk(head):
                if all(is_known(generation, name, reach.end) for (generation, name), reach in node.reach.items()):
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
        entries: Sequence[Entry] = (),
        reach: Mapping[tuple[int, str], Reach] | None = None,
        cut: int | None = None,
    ) -> int:
        """Write a node durably and give its number, which is greater than that of the head before."""
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
        count = ((before or 0) >> _CHANCE_BITS) + 1
        number = (count << _CHANCE_BITS) | secrets.randbits(_CHANCE_BITS)
        write_durably(self._layout.node(number), json.dumps(document).encode(), exclusive=True)
        return number

    def _walk(self, head: int | None) -> Iterator[Node]:
        cuts: set[int | None] = {None}
        newer: Node | None = None
        while head not in cuts and head is not None:
            newer = self._node(head, newer)
            yield newer
            cuts.add(newer.cut)
            head = newer.previous

    def _node(self, number: int, newer: Node | None = None) -> Node:
        """Read a node.

        :param newer: the node after it, which says what is lost with this one
        """
        if self._newest is not None and self._newest[0] == number:
            return self._newest[1]
        path = self._layout.node(number)
        try:
            node = _parse(json.loads(path.read_bytes()), number)
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
            lost = _told(newer) if newer is not None else "all receipts"
            raise ReceiptsUnreadableError(
                f"the receipts that the table {self._layout.table} names are missing or damaged: {path}. With that "
                f"file {lost} cannot be read.",
                pipeline=self._layout.pipeline,
                hint="Restore that file from a backup, or move `_ckpt` to where the table is now. If it is gone for "
                f"good, go on from the ledger's checkpoint with `airflow ckpt accept-sink {self._layout.pipeline} "
                '--keep --reason "..."`.',
            ) from error
        except OSError as error:
            raise io_error(error, f"read {path}") from error
        if self._newest is None or number > self._newest[0]:
            self._newest = (number, node)
        return node


def _parse(document: Mapping[str, Any], number: int) -> Node:
    """The node that was written under a number.

    :raises ValueError: or another error of its kind, if it is damaged
    """
    previous, version, cut = document["previous"], document.get("version", 0), document.get("cut")
    if any(type(found) is not int for found in (version, previous or 0, cut or 0)):
        raise TypeError("a number of a node or version is none")
    if previous is not None and not 0 <= previous < number:
        raise ValueError("a node comes after the one that it names as the one before it")
    return Node(
        previous,
        version,
        [Entry(Receipt.from_json(item), item["file"], version) for item in document["receipts"]],
        {(int(generation), str(partition)): _reach(*how_far) for generation, partition, *how_far in document["reach"]},
        cut,
    )


def _reach(seq: int, end: int, runs: Sequence[Sequence[int]] | None = None) -> Reach:
    """What a node sums up of a partition; an early version did so without runs."""
    found = [Range(seq, seq + 1)] if runs is None else [Range(int(start), int(after)) for start, after in runs]
    return Reach(int(seq), int(end), tuple(found))


def _told(newer: Node) -> str:
    """Receipts that lie before a node, as far as they are not part of it."""
    told = []
    for (generation, partition), reach in sorted(newer.reach.items()):
        own = {entry.receipt.key for entry in newer.entries}
        seq = reach.seq
        while BatchKey(generation, partition, seq) in own:
            seq -= 1
        if seq >= 0:
            told.append(f"{BatchKey(generation, partition, seq)}")
    more = f" and of {len(told) - _NAMED} more partitions" if len(told) > _NAMED else ""
    return f"the receipts up to {', '.join(told[:_NAMED])}{more}" if told else "older receipts"
