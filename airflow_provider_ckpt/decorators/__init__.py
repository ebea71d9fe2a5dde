"""Provide the TaskFlow decorator ``batch.ckpt_batch_task``, which DAG files use as ``@task.ckpt_batch``."""
