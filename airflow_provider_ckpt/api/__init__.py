"""HTTP API of the page *Replication*, which the plugin mounts in Airflow's API server under ``/ckpt/api``."""
