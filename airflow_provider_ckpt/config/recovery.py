"""Model of the section ``recovery`` of a declaration: how far back ``recover`` looks for late records."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import Section


class RecoverySection(Section):
    """Detection of late records: records that appear in the source after their range was read.

    :param window: time by which the low watermark stays behind the checkpoint; ``recover`` finds late records above the
        low watermark only
    :param settle_lag: minimum age of the receipts that ``recover`` compares with the source. In the ranges of younger
        receipts, late records may still appear; a later ``recover`` compares these
    """

    window: Duration = timedelta(days=7)
    settle_lag: Duration = timedelta(minutes=5)
