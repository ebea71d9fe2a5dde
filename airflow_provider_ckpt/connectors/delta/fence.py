"""The fence of the delta sink: a barrier that also works while there is no table yet.

With a table, the fence is an empty commit that carries ``(<ledger>:<pipeline>, epoch)``. Every commit of ours is made
as the very next version of a handle on which that epoch was checked, so one prepared before the fence loses the race
for its version, and one prepared after it sees the epoch.

Without a table there is nothing to commit to, and the schema is not known. So the fence first leaves a durable file
named by the epoch, then looks for the table; a committer first creates the table, empty, and opens its handle, then
reads the fence files, then commits data. Whichever comes first, one of them sees the other: a stale epoch can at worst
leave an empty table behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.layout import Layout
from airflow_provider_ckpt.connectors.delta.staged import discard
from airflow_provider_ckpt.connectors.files.local import io_error, write_durably
from airflow_provider_ckpt.core.errors import FencedError, SinkError

if TYPE_CHECKING:
    from deltalake import DeltaTable

TRIES = 20
"""How often a commit is tried again when another writer took its version."""


def newest_epoch(layout: Layout, table: DeltaTable | None) -> int:
    """The highest epoch fenced so far, 0 if none.

    :param table: a handle; the fence files are read now, after it was opened
    """
    committed = (table.transaction_version(layout.epoch_app) or 0) if table is not None else 0
    files = layout.fences.iterdir() if layout.fences.is_dir() else ()
    return max(committed, max((int(file.name) for file in files if file.name.isdecimal()), default=0))


def refuse_if_fenced(layout: Layout, table: DeltaTable | None, epoch: int) -> None:
    """Fail if a newer epoch holds the fence.

    :raises FencedError: naming both
    """
    newest = newest_epoch(layout, table)
    if newest > epoch:
        raise FencedError(
            f"epoch {epoch} is fenced at {layout.table}: epoch {newest} has taken over.", pipeline=layout.pipeline
        )


def refuse_unless_current(layout: Layout, table: DeltaTable | None, epoch: int) -> None:
    """Fail unless the fence stands at the writer's epoch.

    :raises FencedError: if a newer epoch holds it
    :raises SinkError: if it was never raised, or went with the table
    """
    refuse_if_fenced(layout, table, epoch)
    newest = newest_epoch(layout, table)
    if newest < epoch:
        raise SinkError(
            f"the sink's fence stands at {newest or 'no epoch'}, not at this writer's epoch {epoch}.",
            pipeline=layout.pipeline,
            hint="The fence is raised before anything is sent; start a new run.",
        )


def fence(layout: Layout, epoch: int) -> None:
    """Shut out every older epoch; see the module.

    :raises FencedError: if a newer epoch holds the fence
    :raises SinkError: if other writers keep committing in between
    """
    from deltalake.exceptions import DeltaError

    refuse_if_fenced(layout, None, epoch)
    try:
        write_durably(layout.fences / str(epoch), b"")
    except OSError as error:
        raise io_error(error, f"write the fence at {layout.fences}") from error
    discard(file for file in layout.fences.iterdir() if file.name.isdecimal() and int(file.name) < epoch)
    for _ in range(TRIES):
        table = delta_table.load(layout.table)
        refuse_if_fenced(layout, table, epoch)
        if table is None or table.transaction_version(layout.epoch_app) == epoch:
            return
        try:
            note = {"ckpt": {"pipeline": layout.pipeline, "fence": epoch}}
            delta_table.commit(table, layout.table, [], {layout.epoch_app: epoch}, note)
        except (DeltaError, OSError) as error:
            if not delta_table.moved(table, layout.table):
                raise delta_table.delta_error(error, f"commit the fence to {layout.table}") from error
    raise SinkError(
        f"other writers took every version of {layout.table} in {TRIES} tries.",
        pipeline=layout.pipeline,
        recoverable=True,
        hint="Run again when the table is quieter.",
    )
