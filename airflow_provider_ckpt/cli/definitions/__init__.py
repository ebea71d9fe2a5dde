"""Definitions of the commands of ``airflow ckpt``, in the form of Airflow's parser; a module for each group."""
