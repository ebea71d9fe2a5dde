"""Airflow assets: ``pipeline.pipeline_asset``, what a run has brought to a pipeline's target."""
