"""Kill processes of ``airflow ckpt run`` at planned moments, and run the pipeline again after each kill."""
