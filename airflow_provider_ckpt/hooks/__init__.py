"""Airflow hook ``ckpt.CkptHook``, which opens the ledger."""
