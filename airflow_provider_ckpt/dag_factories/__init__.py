"""Create whole DAGs: from YAML files of pipelines and databases, and to repair pipelines."""
