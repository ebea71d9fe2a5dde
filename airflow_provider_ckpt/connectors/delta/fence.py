"""Raise the fence of the delta sink, even while there is no table yet.

With a table, the fence is an empty commit that stores the epoch in a ``txn`` action (see ``layout.py``). Every commit
of this sink creates the version right after the one in which that epoch was checked. So a commit prepared before the
fence loses the race for its version, and a commit prepared after the fence sees the epoch. Without a table there is
nothing to commit to, and the schema is not known. So the fence first writes a durable file named by the epoch, then
looks for the table; a committer first creates the table, empty, and opens it, then reads the fence files, then commits
data. In whichever order these steps run, the fence sees the table or the committer sees the fence file, so that a
committer of an older epoch can at worst leave an empty table behind. A table that was restored, or whose receipts are
lost, is fenced only once a user has accepted the loss.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.layout import DeltaLayout
from airflow_provider_ckpt.connectors.delta.table_version import DeltaVersion
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.restored_target import record_accepted, start_new_chain
from airflow_provider_ckpt.connectors.two_phase.staging import remove_files


def fence(layout: DeltaLayout, epoch: int, contention: CommitRetries, *, accepting: bool = False) -> None:
    """Shut out all older epochs from the Delta table: once this returns, no commit of an older epoch can succeed.

    :param layout: paths and application ids of the pipeline at the table
    :param epoch: the new epoch
    :param contention: counts the tries to commit, and raises an error if other writers commit first for too long
    :param accepting: whether a user accepted a table that was restored or has lost its receipts
    :raises SinkChangedError: if the table was restored or has lost its receipts, and no user accepted it
    :raises FencedError: if the fence is at a newer epoch
    :raises SinkError: if the table cannot be read or committed to, or other writers keep committing first until the
        run's time budget is used up
    :raises IoError: if the file system or object store fails
    """
    from deltalake.exceptions import DeltaError

    DeltaVersion(layout, None).refuse_if_fenced(epoch)
    (layout.fences / str(epoch)).write(b"")
    receipts = ReceiptChain(layout)
    older = [name for name in layout.fences.names() if name.isdecimal() and int(name) < epoch]
    remove_files(layout.fences / name for name in older)
    while True:
        version = DeltaVersion(layout, delta_table.load(layout.table))
        version.refuse_if_fenced(epoch)
        if version.table is None:
            return
        head = start_new_chain(version, receipts, accepting=accepting)
        if version.committed_epoch == epoch and head is None:
            record_accepted(version)
            return
        contention.refuse_if_over()
        transactions = {layout.epoch_app: epoch}
        if head is not None:
            transactions[layout.receipts_app] = head
        try:
            note = {"ckpt": {"pipeline": layout.pipeline, "fence": epoch}}
            delta_table.commit(version.table, layout.table, [], transactions, note)
        except (DeltaError, OSError) as error:
            if not delta_table.has_newer_version(version.table, layout.table):
                raise delta_table.delta_error(error, f"commit the fence to {layout.table}") from error
            contention.count_try(succeeded=False)
        else:
            contention.count_try(succeeded=True)
