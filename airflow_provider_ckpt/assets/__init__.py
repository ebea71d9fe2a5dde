"""Airflow assets: ``pipeline.pipeline_asset``, updated by runs, and ``work.work_asset``, which starts runs."""
