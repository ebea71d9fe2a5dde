"""A DAG that notifies users of dead letters, held batches, expired ranges and failures."""

# docs begin
from __future__ import annotations

import logging
from typing import Any

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG

from airflow_provider_ckpt.notifications.ckpt import CkptNotifier
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator


def page(context: dict[str, Any]) -> None:
    """Log a critical message, which a pager may watch for."""
    logging.getLogger(__name__).critical(context["ckpt"].subject)


mail = SmtpNotifier(to="data@example.com", subject="{{ ckpt.subject }}", html_content="{{ ckpt.html }}")
tell = [CkptNotifier(mail), CkptNotifier(page, reasons=["held", "expired"])]

with DAG("orders", schedule="@hourly"):
    replicate = CkptReplicateOperator(
        task_id="replicate",
        pipeline="pipelines/orders.yaml",
        on_success_callback=tell,
        on_failure_callback=tell,
    )

# docs end
assert list(replicate.on_success_callback) == tell
