"""Assets of pipelines: ``pipeline.pipeline_asset``, which runs update, and ``work.work_asset``, which starts runs."""
