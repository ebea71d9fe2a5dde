"""Carry out runs and users' actions without Airflow; operators and the command line call this package."""
