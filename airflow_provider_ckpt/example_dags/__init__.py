"""DAGs to copy from; each shows one thing, and the documentation includes them. ``pipelines/`` has their pipelines."""
