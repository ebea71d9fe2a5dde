"""The declaration that the API returns, to anybody who may see the pipeline."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow_provider_ckpt.api.routes.pipelines import get_declaration
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.queries.pipeline_tasks import PlannedPipeline
from tests.services.ledgers import new_ledger_file


def test_it_has_no_values_of_spark_properties(tmp_path: Path) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "hunter2"}
    document = {"name": "orders", "run": {"connection": None, "conf": conf}}
    with Ledger.open(new_ledger_file(tmp_path / "ledger.db")) as ledger:
        ledger.declare(ledger.acquire("orders", "owner", timedelta(minutes=1)), document)
        shown = get_declaration(PlannedPipeline("orders", None, ()), ledger)

    assert shown.document == {
        "name": "orders",
        "run": {"connection": None, "conf": {"spark.hadoop.fs.s3a.secret.key": "***"}},
    }
    assert "hunter2" not in str(shown.yaml)
