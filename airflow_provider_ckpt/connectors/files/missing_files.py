"""Describe in a message the files or objects of a files sink that are gone although their receipts exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from airflow_provider_ckpt.core.receipt import Receipt


class NamedReceipt(Protocol):
    """Interface of a receipt that has the name of the batch's file."""

    @property
    def receipt(self) -> Receipt:
        """The receipt of the batch."""

    @property
    def file(self) -> str | None:
        """Name of the batch's visible file; None if the batch has no rows."""


def describe_missing_files(gone: Sequence[NamedReceipt], kind: str, place: object) -> str | None:
    """Return the part of an error message that names a missing file and the remedy; None if no file is missing.

    An example begins ``the file of delivered batches, such as ckpt-orders-….csv of orders#4, is gone from /data/out``.

    :param gone: receipts whose files are gone
    :param kind: ``file`` or ``object``
    :param place: the directory or prefix that contained the files
    """
    if not gone:
        return None
    number, verb = (f"the {kind}", "is") if len(gone) == 1 else (f"{len(gone)} {kind}s", "are")
    return (
        f"{number} of delivered batches, such as {gone[0].file} of {gone[0].receipt.key}, {verb} gone from {place} (if "
        "readers may remove files, set sink.files_may_go: true)"
    )
