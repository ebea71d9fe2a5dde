"""Functions that create whole DAGs."""
