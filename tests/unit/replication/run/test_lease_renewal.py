from __future__ import annotations

from datetime import timedelta

from airflow_provider_ckpt.replication.run.lease_renewal import renewal_interval


def test_a_lease_is_renewed_three_times_within_its_ttl() -> None:
    assert renewal_interval(timedelta(seconds=60)) == 20
