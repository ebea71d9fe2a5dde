"""Raise the fence of the iceberg sink: commit the run's epoch to the table, which is created if it does not exist.

The epoch is a property of the table, and the commit creates an empty snapshot; ``table_version.py`` explains why both
are needed. The catalog refuses a commit that was prepared before the fence, and a commit prepared after the fence sees
the epoch. A table that was rolled back, or whose receipts are lost, is fenced only once a user has accepted the loss.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.iceberg.table import TableAddress
from airflow_provider_ckpt.connectors.iceberg.table_version import IcebergVersion
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.restored_target import record_accepted, start_new_chain


def fence(address: TableAddress, epoch: int, contention: CommitRetries, *, accepting: bool = False) -> None:
    """Shut out all older epochs from the Iceberg table: once this returns, no commit of an older epoch can succeed.

    :param address: the table
    :param epoch: the new epoch
    :param contention: counter of the tries, which raises an error if other writers commit first for too long
    :param accepting: whether a user accepted a table that was rolled back or has lost its receipts
    :raises SinkChangedError: if the table was rolled back or has lost its receipts, and no user accepted it
    :raises FencedError: if the fence is at a newer epoch
    :raises SinkError: if the catalog fails, or other writers keep committing first until the run's time budget is used
        up
    :raises ConfigError: if the table is removed as soon as it is created, or is in a store that is not supported
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
