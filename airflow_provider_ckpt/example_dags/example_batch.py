"""Use a Python function as the last step of a pipeline's transform."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import DAG, task

if TYPE_CHECKING:
    import pyarrow as pa

# [START howto_decorator_ckpt_batch]
with DAG("example_ckpt_batch", schedule=None, max_active_runs=1, tags=["example"]):

    @task.ckpt_batch(pipeline="pipelines/prices.yaml")
    def banded(rows: pa.Table, *, dear: float) -> pa.Table:
        """Return one row for each given row, in the same order; a row for which this raises becomes a dead letter."""
        import pyarrow.compute as pc

        price = rows.column("price")
        band = pc.if_else(pc.greater(price, dear), "dear", "cheap")
        return rows.append_column("band", band).append_column("_keep", pc.greater(price, 0))

    banded(dear=100.0)
# [END howto_decorator_ckpt_batch]
