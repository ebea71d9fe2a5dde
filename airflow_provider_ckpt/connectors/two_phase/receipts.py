"""Receipts of a two-phase sink: a chain of immutable nodes whose head the table names.

A table has room for one number a pipeline (Delta: a ``txn`` action; Iceberg: a table property), but a receipt also has
a range, counts and an attempt. So each commit first writes a *node*, durably, under a number that was never used: its
receipts, and the number of the node before it, as read from the very version of the table that it builds on. The
commit then makes that number the head, in the same atomic step that adds the data files. So:

- The head alone arbitrates. A node counts if and only if the head reaches it; a node whose commit was lost, or lost
  the race, is reached by nobody and can be ignored, whatever it says and however many attempts wrote one.
- Every receipt can always be read back, and what the table itself holds of us does not grow.
- It says which batches are done, not up to where: a batch skipped in the ledger leaves no hole to get stuck on.

A node also sums up, per generation and partition, the highest seq and range end of all nodes up to it, so a search
stops where nothing older can matter. Numbers grow: commits so far in the upper 31 bits, chance in the lower 32.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.files.local import io_error, write_durably
from airflow_provider_ckpt.connectors.two_phase.layout import Layout
from airflow_provider_ckpt.core.batch import BatchKey, Receipt
from airflow_provider_ckpt.core.errors import SinkError
from airflow_provider_ckpt.core.receipts import Known

_FORMAT = 1
_CHANCE_BITS = 32


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
class Node:
    """What one commit receipted.

    :param previous: the number of the node before it
    :param version: the version of the table that its commit made, 0 if it does not say
    :param reach: by generation and partition, the highest seq and range end in this node and all before it
    """

    previous: int | None
    version: int
    entries: Sequence[Entry]
    reach: Mapping[tuple[int, str], tuple[int, int]]


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
            seq, highest = reach.get((key.generation, key.partition), (key.seq, end))
            reach[key.generation, key.partition] = (max(seq, key.seq), max(highest, end))
        document = {
            "format": _FORMAT,
            "previous": previous,
            "version": version,
            "receipts": [entry.receipt.to_json() | {"file": entry.file} for entry in entries],
            "reach": [[*where, *how_far] for where, how_far in sorted(reach.items())],
        }
        return self._write(previous, document)

    def begin_anew(self, lost: int, *, version: int) -> int:
        """Write a first node durably, for a chain whose newest node cannot be read; give its number.

        :param lost: the number of the node that cannot be read
        :param version: the version of the table that the commit makes
        :raises OSError: if the file system fails
        """
        return self._write(lost, {"format": _FORMAT, "previous": None, "version": version, "receipts": [], "reach": []})

    def version_of(self, number: int) -> int:
        """The version of the table that the commit of a node made, 0 if it does not say.

        :raises SinkError: if the node is missing or damaged
        """
        return self._node(number).version

    def find(self, head: int | None, keys: Iterable[BatchKey]) -> dict[BatchKey, Entry]:
        """The entries of those batches that have one."""
        missing = set(keys)
        found: dict[BatchKey, Entry] = {}
        for node in self._walk(head):
            missing = {key for key in missing if key.seq <= node.reach.get((key.generation, key.partition), (-1, 0))[0]}
            if not missing:
                break
            for entry in node.entries:
                if entry.receipt.key in missing:
                    found[entry.receipt.key] = entry
                    missing.discard(entry.receipt.key)
        return found

    def beyond(self, head: int | None, known: Mapping[str, Known]) -> list[Receipt]:
        """Receipts that are news, in the order of their keys."""

        def is_known(generation: int, partition: str, end: int) -> bool:
            return partition in known and known[partition].covers(generation, end)

        found = []
        for node in self._walk(head):
            if all(is_known(generation, name, end) for (generation, name), (_, end) in node.reach.items()):
                break
            receipts = (entry.receipt for entry in node.entries)
            found += [r for r in receipts if not is_known(r.key.generation, r.key.partition, r.range.end)]
        return sorted(found, key=lambda receipt: receipt.key)

    def _write(self, before: int | None, document: Mapping[str, Any]) -> int:
        count = ((before or 0) >> _CHANCE_BITS) + 1
        number = (count << _CHANCE_BITS) | secrets.randbits(_CHANCE_BITS)
        write_durably(self._layout.node(number), json.dumps(document).encode(), exclusive=True)
        return number

    def _walk(self, head: int | None) -> Iterator[Node]:
        while head is not None:
            node = self._node(head)
            yield node
            head = node.previous

    def _node(self, number: int) -> Node:
        if self._newest is not None and self._newest[0] == number:
            return self._newest[1]
        path = self._layout.node(number)
        try:
            node = _parse(json.loads(path.read_bytes()))
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"the receipts that the table {self._layout.table} names are missing or damaged: {path}.",
                pipeline=self._layout.pipeline,
                hint="Restore that file from a backup, or move `_ckpt` to where the table is now. Without it the "
                "ledger alone can tell which batches are in the table: see the runbook.",
            ) from error
        except OSError as error:
            raise io_error(error, f"read {path}") from error
        if self._newest is None or number > self._newest[0]:
            self._newest = (number, node)
        return node


def _parse(document: Mapping[str, Any]) -> Node:
    previous, version = document["previous"], document.get("version", 0)
    return Node(
        previous,
        version,
        [Entry(Receipt.from_json(item), item["file"], version) for item in document["receipts"]],
        {(generation, partition): (seq, end) for generation, partition, seq, end in document["reach"]},
    )
