"""What a user declares: ``Pipeline`` and its parts, as pydantic models; ``load`` reads them from YAML."""
