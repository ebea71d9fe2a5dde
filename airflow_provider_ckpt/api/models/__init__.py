"""Requests and responses of the API as pydantic models; they define the OpenAPI document."""
