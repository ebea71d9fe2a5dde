"""Store the list of discovered source files in the sink too, and read it from there if the ledger has lost files.

A ledger that was restored from a backup, or that is new and has adopted receipts, might discover files again in another
order, and would then apply the sink's receipts to the wrong files. So the lists are read from the sink instead. If the
sink has receipts of files that neither its lists nor the ledger name, the run is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.file_lists import continuing_lists, split_into_lists
from airflow_provider_ckpt.connectors.source_plan import Plan, Start
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.sink_audit import Difference, DifferenceKind

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sink_protocol import Sink
    from airflow_provider_ckpt.connectors.source_plan import SourceFile
    from airflow_provider_ckpt.core.receipt import Receipt
    from airflow_provider_ckpt.replication.run.run import Run
    from airflow_provider_ckpt.replication.setup import PipelineContext

log = logging.getLogger(__name__)

_HINT = (
    "Restore a backup of the ledger that is no older than the newest delivery, or of the sink's bookkeeping with the "
    "lists in it. If there is none, start over with a pipeline of another name, with an empty target or with "
    "source.start_from: latest once you know that everything was delivered."
)


def store_in_sink(run: Run, files: Sequence[SourceFile], start: int | None = None) -> None:
    """Store newly discovered files in the sink, before the ledger stores them.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param files: the files in order, all of them after the files that the ledger knows
    :param start: position at which the partition begins, if these are its first files; else None
    """
    for part in split_into_lists(files, run.epoch, start):
        run.sink.store_file_list(part)


def restore_lost_files(run: Run, *, started: bool) -> Start | None:
    """Read from the sink's lists those source files that the ledger has lost, after the fence was raised.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param started: whether the ledger knows the source's partitions. If so, the files are stored in the ledger here; if
        not, they are part of the returned start
    :returns: start of the source according to the sink's lists; None if the ledger knows the source's partitions, or
        the sink lists no files
    :raises SourceError: if the sink has receipts of files that neither the sink's lists nor the ledger name
    """
    if not run.pipeline.source.discovers_files:
        return None
    known = run.known_files.read()
    lists = continuing_lists(known, run.sink.stored_file_lists(len(known)))
    files = list(chain.from_iterable(part.files for part in lists))
    if not started:
        if not files:
            _refuse_unlisted(run)
            return None
        log.warning("%s: %d source files were read from the sink's list", run.pipeline.name, len(files))
        return Start(lists[0].start or 0, files)
    if files:
        log.warning(
            "%s: this ledger knew %d source files, and the sink's list names %d more, such as %s; they were read from "
            "there, so that the sink's receipts refer to the same records as before",
            run.pipeline.name,
            len(known),
            len(files),
            files[0].path,
        )
        store_in_sink(run, files)
        run.ledger.plan(run.lease, Plan(files=files))
    return None


def refuse_unlisted_receipts(run: Run, receipts: Sequence[Receipt]) -> None:
    """Raise an error if the sink has a receipt for files that the ledger does not know.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param receipts: receipts of the sink that the ledger did not know
    :raises SourceError: if there is such a receipt; the error names the first one
    """
    if not run.pipeline.source.discovers_files or not receipts:
        return
    files = run.known_files.read()
    end = files[-1].base + files[-1].size if files else 0
    beyond = next((receipt for receipt in receipts if not receipt.key.is_replay and receipt.range.end > end), None)
    if beyond is not None:
        raise SourceError(
            f"the sink holds a receipt of {beyond.range} of {beyond.key}, but the {len(files)} source files that this "
            f"ledger knows end at position {end}, and the sink has no list of the files after them. The ledger is "
            "older than that receipt, and discovering files again could find them in another order.",
            pipeline=run.pipeline.name,
            position=beyond.range.end,
            hint=_HINT,
        )


def compare_files(setup: PipelineContext, sink: Sink) -> list[Difference]:
    """Return a list with the first difference between the source files in the ledger and in the sink's lists.

    The list is empty if there is no difference. Files that the sink does not list, because an older version of the
    package wrote to it, are not compared.

    :param setup: the pipeline with its ledger
    :param sink: the pipeline's sink, open
    """
    if not setup.pipeline.source.discovers_files:
        return []
    name = setup.pipeline.name
    recorded = setup.ledger.files(name)
    listed = chain.from_iterable(part.files for part in continuing_lists((), sink.stored_file_lists(0)))
    for recorded_file, listed_file in zip(recorded, listed, strict=False):
        if recorded_file != listed_file:
            message = (
                f"source file {recorded_file.ordinal} is {recorded_file.path} at position {recorded_file.base} in the "
                f"ledger, and {listed_file.path} at {listed_file.base} in the sink's list"
            )
            return [Difference(DifferenceKind.FILES_DIFFER, "files", None, message)]
    return []


def _refuse_unlisted(run: Run) -> None:
    """Raise an error if the sink has a receipt of source files although neither ledger nor sink lists any files.

    :param run: run in progress, whose sink is open
    :raises SourceError: if there is such a receipt, which the error names
    """
    receipt = next((receipt for receipt in run.sink.receipts({}) if not receipt.key.is_replay), None)
    if receipt is not None:
        raise SourceError(
            f"the sink holds receipts of this pipeline, such as of {receipt.range} of {receipt.key}, but no list of "
            "the source files that they count, and this ledger knows none. Discovering files again could find them in "
            "another order.",
            pipeline=run.pipeline.name,
            hint=_HINT,
        )
