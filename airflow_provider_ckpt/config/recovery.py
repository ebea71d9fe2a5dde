"""Model of the section ``recovery`` of a declaration: the records that a recovery compares with the receipts."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import Section


class RecoverySection(Section):
    """Detection of late records: records that appear in the source after their range was read.

    :param window: distance in time at which the low watermark follows the checkpoint; only records above the low
        watermark are found
    :param settle_lag: minimum age of receipts that a recovery compares with the source, because late records are common
        in younger ranges; a later recovery compares them
    """

    window: Duration = timedelta(days=7)
    settle_lag: Duration = timedelta(minutes=5)
