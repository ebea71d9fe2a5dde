"""Declarations of pipelines: ``Pipeline`` and its sections as pydantic models, and ``load``, which reads YAML files."""
