"""Declarations of pipelines: ``Pipeline`` and its parts as pydantic models, and ``load``, which reads YAML files."""
