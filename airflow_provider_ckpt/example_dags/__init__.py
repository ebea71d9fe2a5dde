"""Example DAGs, also shown in the documentation; the folder ``pipelines`` holds the declarations that they use."""
