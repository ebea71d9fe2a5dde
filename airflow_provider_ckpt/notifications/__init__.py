"""Airflow notifiers: ``ckpt.CkptNotifier``, which tells users about runs that need attention."""
