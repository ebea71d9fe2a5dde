"""The fence of the iceberg sink: a commit of the epoch to the table, which is created for it if there is none.

The epoch is a property, and the commit makes an empty snapshot; ``version.py`` says why both are needed. A commit
prepared before the fence is refused by the catalog, and one prepared after it sees the epoch.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.iceberg.table import TableAddress
from airflow_provider_ckpt.connectors.iceberg.version import IcebergVersion
from airflow_provider_ckpt.connectors.two_phase.version import TRIES, never_quiet


def fence(address: TableAddress, epoch: int) -> None:
    """Shut out every older epoch; see the module.

    :raises FencedError: if a newer epoch holds the fence
    :raises SinkError: if other writers keep committing in between
    """
    for _ in range(TRIES):
        version = IcebergVersion(address, address.load() or address.create())
        version.refuse_if_fenced(epoch)
        if version.epoch == epoch:
            return
        version.commit_fence(epoch)
    raise never_quiet(version.layout)
