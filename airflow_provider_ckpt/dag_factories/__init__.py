"""Functions that make whole DAGs."""
