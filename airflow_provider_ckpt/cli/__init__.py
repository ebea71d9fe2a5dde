"""The command line ``airflow ckpt``: run, inspect and administer pipelines and the ledger."""
