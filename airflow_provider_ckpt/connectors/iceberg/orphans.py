"""Removes what lanes staged and nobody committed, once a fence has settled that nobody ever will.

After the fence, a data file of an older epoch belongs to the table if and only if the receipts name it. Only the
directories that lanes of those epochs wrote to are looked at, each once, and what goes wrong here costs disk space and
no more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from airflow_provider_ckpt.connectors.files.local import write_durably
from airflow_provider_ckpt.connectors.iceberg.table import local_place
from airflow_provider_ckpt.connectors.iceberg.version import IcebergVersion
from airflow_provider_ckpt.connectors.two_phase.receipts import Receipts
from airflow_provider_ckpt.connectors.two_phase.staged import discard

log = logging.getLogger(__name__)


def sweep(version: IcebergVersion) -> None:
    """Remove the orphans of all epochs before the one whose fence this version has."""
    layout, epoch = version.layout, version.epoch
    try:
        swept = int(layout.swept.read_text()) if layout.swept.is_file() else 0
        data = version.table.location_provider().data_path
        staged = list(_staged(local_place(data, str(layout.table)) / layout.staging, swept, epoch))
        if staged:
            known = Receipts(layout).committed(version.head, since=swept)
            orphans = [file for file in staged if file.stem.rpartition("-")[0] not in known]
            discard(orphans)
            if orphans:
                log.info("%s: removed %d data files that were never committed", layout.pipeline, len(orphans))
        write_durably(layout.swept, str(epoch).encode())
    except (OSError, ValueError) as error:
        log.warning("%s: data files that were never committed were left behind: %s", layout.pipeline, error)


def _staged(place: Path, first: int, end: int) -> Iterator[Path]:
    """The data files that lanes of some epochs wrote."""
    for directory in place.iterdir() if place.is_dir() else ():
        if directory.name.isdecimal() and first <= int(directory.name) < end:
            yield from directory.iterdir()
