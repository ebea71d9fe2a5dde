"""TaskFlow decorators: ``batch.ckpt_batch_task``, known as ``@task.ckpt_batch``."""
