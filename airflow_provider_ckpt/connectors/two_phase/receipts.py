"""Receipts of a two-phase sink: a chain of immutable nodes whose head is stored in the table.

A table can store one number for each pipeline (Delta: a ``txn`` action; Iceberg: a table property), but a receipt also
has a range, counts and an attempt. So each commit first writes a *node* durably under a new number: its receipts, and
the number of the node before it, as read from the version of the table that it builds on. The commit then makes the
new number the head, in the same atomic step that adds the data files. This has three consequences:

- Only the head decides. A node counts if and only if it is reachable from the head; a node whose commit failed or lost
  the race is unreachable and can be ignored, whatever it contains.
- Every receipt can always be read back, and the bookkeeping in the table itself does not grow.
- The receipts name single batches, not a position, so a batch that was skipped in the ledger leaves no gap.

A node also has a *summary*: for each generation and partition, the batches that have a receipt in this node or in any
node before it, and their highest range end. With it a search ends at the first node before which no receipt of interest
can be, and an old batch can be looked up without reading the chain back to that batch's own node. The numbers of nodes
grow: they have the count of commits in the upper 31 bits, and random bits in the lower 32.

The receipt of a schema version, whose changes a commit made to the table's columns, is part of that commit's node. Each
node names the newest node before it that has one, so that the versions can be read without the nodes between them.

A node whose file is missing or damaged breaks the chain, and all earlier nodes are lost with it. Once a user has
accepted that, a new node states where the chain is cut, and nothing is searched beyond the cut.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_provider_ckpt.connectors.two_phase.layout import TableLayout
from airflow_provider_ckpt.connectors.two_phase.receipt_nodes import (
    NO_BATCHES,
    CommittedReceipt,
    ReceiptedBatches,
    ReceiptNode,
    node_document,
    parse_node,
)
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ReceiptsUnreadableError
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.schema_version import SchemaVersion

_RANDOM_BITS = 32
_MAX_NAMED = 3
"""Maximum number of partitions that the error of an unreadable node names as those with lost receipts."""


class ReceiptChain:
    """Reader and writer of one pipeline's receipt nodes; callers pass the head, read from a version of the table.

    :param layout: paths of the pipeline's files at the table
    """

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._newest: tuple[int, ReceiptNode] | None = None

    def append(
        self,
        previous: int | None,
        entries: Sequence[CommittedReceipt],
        *,
        version: int,
        schema: SchemaVersion | None = None,
    ) -> int:
        """Write a node durably and return its number, to be committed as the new head.

        :param previous: head at the version that the commit builds on; None if that version has no receipts
        :param entries: receipts of the node
        :param version: version of the table that the commit creates
        :param schema: schema version whose changes the commit makes to the table's columns; None if it makes none
        :raises IoError: if the file system or object store fails; no file is left behind
        """
        reach = dict(self._node(previous).receipted) if previous is not None else {}
        for entry in entries:
            key, end = entry.receipt.key, entry.receipt.range.end
            reach[key.generation, key.partition] = reach.get((key.generation, key.partition), NO_BATCHES).with_receipt(
                key.seq, end
            )
        return self._write(
            previous,
            previous=previous,
            version=version,
            entries=entries,
            reach=reach,
            schema=schema,
            schema_before=self._newest_schema_node(previous),
        )

    def start_new_chain(self, head: int, lost: int, *, version: int) -> int:
        """Write a node durably that ends the chain before an unreadable node, and return the new node's number.

        The receipts in nodes that are newer than the unreadable one stay part of the chain.

        :param head: the current head
        :param lost: number of the node that cannot be read
        :param version: version of the table that the commit creates
        :raises IoError: if the file system or object store fails
        """
        if head == lost:
            return self._write(head, previous=None, version=version)
        return self._write(
            head,
            previous=head,
            version=version,
            reach=self._node(head).receipted,
            cut=lost,
            schema_before=self._newest_schema_node(head),
        )

    def version_of(self, number: int) -> int:
        """Return the version of the table that a node's commit created, 0 if not recorded.

        :param number: number of the node
        :raises ReceiptsUnreadableError: if the node is missing or damaged
        """
        return self._node(number).version

    def newest(self, head: int | None) -> Sequence[CommittedReceipt]:
        """Return the receipts of the newest commit that has any; an empty sequence if there are none.

        :param head: head of the chain, None if there are no receipts
        :raises ReceiptsUnreadableError: if a node is missing or damaged
        """
        return next((node.entries for node in self.nodes(head) if node.entries), ())

    def first_unreadable(self, head: int | None) -> int | None:
        """Return the number of the newest node that is missing or damaged; None if the whole chain can be read.

        :param head: head of the chain, None if there are no receipts
        """
        number = head
        try:
            for node in self.nodes(head):
                number = node.previous
        except ReceiptsUnreadableError:
            return number
        return None

    def schema_versions(self, head: int | None) -> list[SchemaVersion]:
        """Return the schema versions that have a receipt, newest first.

        If a node is missing or damaged, only the versions in newer nodes are returned.

        :param head: head of the chain, None if there are no receipts
        """
        found: list[SchemaVersion] = []
        try:
            number = self._newest_schema_node(head)
            while number is not None:
                node = self._node(number)
                if node.schema is not None:
                    found.append(node.schema)
                number = node.schema_before
        except ReceiptsUnreadableError:
            return found
        return found

    def find(self, head: int | None, keys: Iterable[BatchKey]) -> Iterator[CommittedReceipt]:
        """Yield the receipts of those given batches that have one, newest first.

        :param head: head of the chain, None if there are no receipts
        :param keys: the batches
        :raises ReceiptsUnreadableError: if a node is missing or damaged, after the receipts in newer nodes
        """
        wanted = set(keys)
        for node in self.nodes(head):
            wanted = {key for key in wanted if node.may_contain(key)}
            if not wanted:
                break
            for entry in node.entries:
                if entry.receipt.key in wanted:
                    wanted.discard(entry.receipt.key)
                    yield entry

    def receipted(self, head: int | None, keys: Iterable[BatchKey]) -> set[BatchKey]:
        """Return those of the given batches that have a receipt.

        The search reads the receipts in the nodes of the newest epoch, and then also the summaries in nodes of older
        epochs, so that it seldom has to read the chain back to the nodes with older receipts. If a node is missing or
        damaged, only the batches found before are returned.

        :param head: head of the chain, None if there are no receipts
        :param keys: the batches
        """
        wanted, found, newest = set(keys), set[BatchKey](), 0
        try:
            for node in self.nodes(head):
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

        :param head: head of the chain, None if there are no receipts
        :param known: the receipts that the ledger knows, by partition; see :meth:`.Sink.receipts`
        :raises ReceiptsUnreadableError: if a node is missing or damaged, after the receipts in newer nodes
        """

        def is_known(generation: int, partition: str, end: int) -> bool:
            return partition in known and known[partition].covers(generation, end)

        found: list[Receipt] = []
        unreadable: ReceiptsUnreadableError | None = None
        try:
            for node in self.nodes(head):
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
        schema: SchemaVersion | None = None,
        schema_before: int | None = None,
    ) -> int:
        """Write the file of a node durably, under a new number, and return the number.

        The node counts only once a commit makes this number the head of the chain. It is greater than the number of
        the previous head, and its random lower bits keep two processes from choosing the same.

        :param before: number of the previous head; None for the first node
        :param previous: number of the node that the chain continues with; None to end it here
        :param version: version of the table that the commit creates
        :param entries: receipts of the node
        :param reach: the node's summary, by generation and partition; None for an empty one
        :param cut: number of an older node that cannot be read, so that the chain ends at the node after it; None if
            the chain is not cut
        :param schema: schema version whose changes the commit makes to the table's columns; None if it makes none
        :param schema_before: number of the newest node before this one that has a schema version; None if there is none
        """
        document = node_document(previous, version, entries, reach or {}, cut, schema, schema_before)
        count = ((before or 0) >> _RANDOM_BITS) + 1
        number = (count << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        self._layout.node(number).write(json.dumps(document).encode(), exclusive=True)
        return number

    def _newest_schema_node(self, head: int | None) -> int | None:
        """Return the number of the newest node that has a schema version; None if there is none.

        :param head: head of the chain, None if there are no receipts
        :raises ReceiptsUnreadableError: if the head's node is missing or damaged
        """
        if head is None:
            return None
        node = self._node(head)
        return head if node.schema is not None else node.schema_before

    def nodes(self, head: int | None) -> Iterator[ReceiptNode]:
        """Yield the nodes of the chain, newest first.

        :param head: head of the chain, None if there are no receipts
        :raises ReceiptsUnreadableError: if a node is missing or damaged
        """
        cuts: set[int | None] = {None}
        newer: ReceiptNode | None = None
        while head not in cuts and head is not None:
            newer = self._node(head, newer)
            yield newer
            cuts.add(newer.cut)
            head = newer.previous

    def _node(self, number: int, newer: ReceiptNode | None = None) -> ReceiptNode:
        """Return a receipt node, read from its file; the newest node that was read is cached.

        :param number: number of the node
        :param newer: the node that names this node as previous, None for the head; if this node cannot be read, the
            error states by the summary of ``newer`` which receipts are lost
        :raises ReceiptsUnreadableError: if the file is missing or damaged
        """
        if self._newest is not None and self._newest[0] == number:
            return self._newest[1]
        path = self._layout.node(number)
        try:
            node = parse_node(json.loads(path.read() or b""), number)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            lost = _describe_lost(newer) if newer is not None else "all receipts"
            raise ReceiptsUnreadableError(
                f"a file of receipts to which the table {self._layout.table} refers is missing or damaged: {path}. "
                f"Without that file {lost} cannot be read.",
                pipeline=self._layout.pipeline,
                hint="Restore the file from a backup; if the table was moved, also move its directory `_ckpt`. If the "
                "file is lost, continue from the ledger's checkpoint with `airflow ckpt accept-sink "
                f'{self._layout.pipeline} --keep --reason "..."`.',
            ) from error
        if self._newest is None or number > self._newest[0]:
            self._newest = (number, node)
        return node


def _describe_lost(newer: ReceiptNode) -> str:
    """Return the receipts that are lost with older nodes, for a message, such as ``the receipts up to 0#41``.

    :param newer: oldest node that can be read
    """
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
