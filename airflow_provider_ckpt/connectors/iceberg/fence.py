"""The fence of the iceberg sink: a commit of the epoch to the table, which is created for it if there is none.

The epoch is a property, and the commit makes an empty snapshot; ``version.py`` says why both are needed. A commit
prepared before the fence is refused by the catalog, and one prepared after it sees the epoch.

A table that was rolled back, or whose receipts are lost, is fenced only once a person has accepted it as it is.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.iceberg.table import TableAddress
from airflow_provider_ckpt.connectors.iceberg.version import IcebergVersion
from airflow_provider_ckpt.connectors.two_phase.contention import Contention
from airflow_provider_ckpt.connectors.two_phase.receipts import Receipts
from airflow_provider_ckpt.connectors.two_phase.set_back import accept, begin_anew


def fence(address: TableAddress, epoch: int, contention: Contention, *, accepting: bool = False) -> None:
    """Shut out every older epoch; see the module.

    :param contention: bounds how long other writers may be faster
    :param accepting: whether a person accepted a table that was set back or has lost its receipts
    :raises SinkChangedError: if it has, and nobody did
    :raises FencedError: if a newer epoch holds the fence
    :raises SinkError: if other writers keep committing in between until the time is over
    """
    while True:
        version = IcebergVersion(address, address.load() or address.create())
        version.refuse_if_fenced(epoch)
        receipts = Receipts(version.layout)
        head = begin_anew(version, receipts, accepting=accepting)
        if version.epoch == epoch and head is None:
            accept(version)
            return
        contention.refuse_if_over()
        contention.tried(worked=version.commit_fence(epoch, head))
