"""Airflow notifiers: ``ckpt.CkptNotifier``."""
