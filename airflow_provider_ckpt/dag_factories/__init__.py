"""Create whole DAGs: from YAML files that declare pipelines or many tables, and for repairing pipelines."""
