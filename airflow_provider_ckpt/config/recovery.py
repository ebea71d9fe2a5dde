"""Model of the section ``recovery`` of a declaration: the records that a recovery compares with the receipts."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import Section


class RecoverySection(Section):
    """Detection of late records: records that appear in the source after their range was read.

    :param window: distance in time at which the low watermark follows the checkpoint; only records above the low
        watermark are found
    :param settle_lag: minimum age of receipts that a recovery compares with the source; younger ones, in whose ranges
        late records are still common, are left to a later recovery
    """

    window: Duration = timedelta(days=7)
    settle_lag: Duration = timedelta(minutes=5)
