"""Fence of the iceberg sink: a commit of the epoch to the table, which is created if it does not exist.

The epoch is a property, and the commit creates an empty snapshot; ``version.py`` explains why both are needed. The
catalog refuses a commit that was prepared before the fence, and one prepared after it sees the epoch.

A table that was rolled back, or whose receipts are lost, is fenced only once a user has accepted it as it is.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.iceberg.table import TableAddress
from airflow_provider_ckpt.connectors.iceberg.version import IcebergVersion
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.restored_target import record_accepted, start_new_chain


def fence(address: TableAddress, epoch: int, contention: CommitRetries, *, accepting: bool = False) -> None:
    """Fence every older epoch; see the module.

    :param address: the table
    :param epoch: the new epoch
    :param contention: limit of the retries while other writers are faster
    :param accepting: whether a user accepted a table that was set back or has lost its receipts
    :raises SinkChangedError: if that happened and no user accepted it
    :raises FencedError: if the fence is at a newer epoch
    :raises SinkError: if other writers keep committing in between until the time is over
    """
    while True:
        version = IcebergVersion(address, address.load() or address.create())
        version.refuse_if_fenced(epoch)
        receipts = ReceiptChain(version.layout)
        head = start_new_chain(version, receipts, accepting=accepting)
        if version.epoch == epoch and head is None:
            record_accepted(version)
            return
        contention.refuse_if_over()
        contention.count_try(succeeded=version.commit_fence(epoch, head))
