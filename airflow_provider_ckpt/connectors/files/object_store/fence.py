"""Raise the fence of a files sink in an object store: write the new epoch to the head object if it is unchanged.

Every commit replaces the head object, too, on the condition that it still has the content in which the commit's epoch
was checked (see ``version.py``). So a commit that was prepared before the fence is refused by the store, and a commit
that is prepared after it sees the newer epoch.

A prefix whose receipts are lost is fenced only if a user has accepted the loss.
"""

from __future__ import annotations

import secrets

from airflow_provider_ckpt.connectors.files.object_store.layout import ObjectLayout
from airflow_provider_ckpt.connectors.files.object_store.version import ObjectFilesVersion
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.restored_target import record_accepted, start_new_chain
from airflow_provider_ckpt.core.errors import IoError


def fence(
    layout: ObjectLayout, receipts: ReceiptChain, epoch: int, contention: CommitRetries, *, accepting: bool = False
) -> int | None:
    """Shut out all older epochs from the prefix: once this returns, no commit of an older epoch can succeed.

    :param layout: keys of the sink
    :param receipts: receipts of the sink
    :param epoch: the new epoch
    :param contention: counter of the tries, which raises an error if other writers commit first for too long
    :param accepting: whether a user has accepted a prefix that has lost its receipts
    :return: number of the newest receipt node; None if there is none
    :raises SinkChangedError: if the prefix has lost its receipts, and no user has accepted the loss
    :raises FencedError: if the fence is at a newer epoch
    :raises SinkError: if other writers keep committing first until the run's time budget is used up
    """
    while True:
        version = ObjectFilesVersion(layout)
        version.refuse_if_fenced(epoch)
        _create_identity(layout)
        head = start_new_chain(version, receipts, accepting=accepting)
        if version.epoch == epoch and head is None:
            record_accepted(version)
            return version.head
        contention.refuse_if_over()
        contention.count_try(succeeded=version.replace(epoch, version.head if head is None else head))


def _create_identity(layout: ObjectLayout) -> None:
    """Create the target's id if it has none; if several processes do so at once, the id stored first remains."""
    if layout.identity.read() is not None:
        return
    try:
        layout.identity.write(f"{secrets.token_hex(16)}\n".encode(), exclusive=True)
    except IoError:
        if layout.identity.read() is None:
            raise
