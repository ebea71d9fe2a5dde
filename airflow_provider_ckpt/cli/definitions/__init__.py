"""Definitions of the commands of ``airflow ckpt``, in the form of Airflow's parser; one module for each kind."""
