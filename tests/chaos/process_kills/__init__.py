"""Kills of ``airflow ckpt run`` as whole processes, at planned moments, each followed by a plain run."""
