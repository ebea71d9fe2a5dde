"""``airflow ckpt ...``: what a person does with pipelines and the ledger from a shell."""
