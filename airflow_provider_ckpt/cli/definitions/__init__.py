"""Define the commands of ``airflow ckpt`` in the form of Airflow's parser, with a module for each group."""
