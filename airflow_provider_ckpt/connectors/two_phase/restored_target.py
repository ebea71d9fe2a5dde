"""Detect that a table was restored or rolled back to an older version, so that it lacks rows of existing receipts.

Receipts survive a restore or rollback: Delta keeps the ``txn`` actions, and Iceberg the table's properties. But each
receipt node records the version of the table that its commit created, and the table's own history shows from which
versions its content derives. This is checked before each commit, so receipts whose rows were removed are always the
newest ones of the chain; only a receipt file that was removed or altered can be anywhere in it. The file ``accepted``
records the version that the newest fence found intact, or that a user accepted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.version import TableVersion
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ReceiptsUnreadableError, SinkChangedError


@dataclass(frozen=True, slots=True)
class TableLoss:
    """Evidence that rows or receipts of a pipeline are gone.

    :param message: the evidence, for an error message
    :param kept: version to which the table was set back, so that it has only the rows up to that version; None if the
        receipts cannot be read
    """

    message: str
    kept: int | None


def find_loss(version: TableVersion, receipts: ReceiptChain) -> TableLoss | None:
    """Return evidence that a restore or rollback removed delivered rows, or that receipts are lost; else None.

    Of the receipt nodes, only the newest is read: damage of an older one is not found here.

    :param version: the newest version of the table
    :param receipts: the pipeline's receipts at the table
    :raises IoError: if the file system fails
    """
    if version.head is None:
        return None
    try:
        committed = receipts.version_of(version.head)
    except ReceiptsUnreadableError as error:
        return TableLoss(error.message, None)
    restored = version.restored_version(max(committed, accepted_version(version)))
    if restored is None or committed <= restored:
        return None
    return TableLoss(
        f"the table {version.layout.table} was restored or rolled back to its version {restored}, but this pipeline "
        f"has delivered rows up to version {committed}",
        restored,
    )


def refuse_loss(version: TableVersion, receipts: ReceiptChain) -> None:
    """Raise an error if rows or receipts were lost since the run raised the fence; see :func:`find_loss`.

    :param version: the newest version of the table
    :param receipts: the pipeline's receipts at the table
    :raises SinkChangedError: with the evidence
    """
    if (found := find_loss(version, receipts)) is not None:
        raise _refusal(version, found)


def start_new_chain(version: TableVersion, receipts: ReceiptChain, *, accepting: bool) -> int | None:
    """Start a new chain of receipts if a user accepted a loss and a node of the old chain is missing or damaged.

    A fence calls this function. Nodes that are newer than the unreadable one become part of the new chain.

    :param version: the newest version of the table
    :param receipts: the pipeline's receipts at the table
    :param accepting: whether a user accepted that rows or receipts are lost. If so, the whole chain is read, to find an
        unreadable node; if not, a loss that :func:`find_loss` reports is an error, and the chain is left as it is
    :return: number of the new chain's head, to be committed with the epoch; None if the chain is left as it is
    :raises SinkChangedError: if rows or receipts are lost and no user accepted the loss
    :raises IoError: if the file system fails
    """
    found = find_loss(version, receipts)
    if found is not None and not accepting:
        raise _refusal(version, found)
    if version.head is None or not accepting:
        return None
    lost = receipts.first_unreadable(version.head)
    if lost is None:
        return None
    return receipts.start_new_chain(version.head, lost, version=version.next_number)


def batches_without_rows(version: TableVersion, receipts: ReceiptChain, keys: Sequence[BatchKey]) -> list[BatchKey]:
    """Return those of the given batches that have no readable receipt, or whose rows a restore or rollback removed.

    :param version: the newest version of the table
    :param receipts: the pipeline's receipts at the table
    :param keys: batches whose receipt the ledger has seen
    """
    setback = find_loss(version, receipts)
    if setback is None:
        receipted = receipts.receipted(version.head, keys)
    elif setback.kept is None:
        receipted = set()
    else:
        receipted = set()
        with suppress(ReceiptsUnreadableError):
            for entry in receipts.find(version.head, keys):
                if entry.version <= setback.kept:
                    receipted.add(entry.receipt.key)
    return [key for key in keys if key not in receipted]


def record_accepted(version: TableVersion) -> None:
    """Record durably that this version of the table is intact, or that a user accepted it.

    :func:`find_loss` ignores restores and rollbacks that happened before this version.

    :param version: the version
    :raises IoError: if the file system fails
    """
    document = {"target": version.target, "version": version.number}
    if _read_accepted(version) != document:
        version.layout.accepted.write(json.dumps(document).encode())


def _refusal(version: TableVersion, found: TableLoss) -> SinkChangedError:
    return SinkChangedError(
        f"{found.message.rstrip('.')}. Nothing more was sent.",
        pipeline=version.layout.pipeline,
        hint="Run again: before it sends anything, the next run fails with an error that names the commands to choose "
        "from.",
    )


def accepted_version(version: TableVersion) -> int:
    """Return the version number that :func:`record_accepted` recorded last for this table; 0 if it recorded none.

    :param version: the newest version of the table
    """
    match _read_accepted(version):
        case {"target": version.target, "version": int(number)}:
            return number
    return 0


def _read_accepted(version: TableVersion) -> Any:
    """Return the JSON document that :func:`record_accepted` wrote; None if its file is missing or damaged.

    If None is returned, no version counts as accepted.
    """
    try:
        return json.loads(version.layout.accepted.read() or b"")
    except ValueError:
        return None
