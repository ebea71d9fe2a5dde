"""Links that Airflow shows on a task's page: ``pipeline.PipelineLink`` and ``spark.SparkLink``."""
