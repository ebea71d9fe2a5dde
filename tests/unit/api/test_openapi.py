"""The OpenAPI document is complete, and the committed file, from which the page's types are made, is up to date."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.services.openapi import FILE, document


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    """The document that the app makes now."""
    found: dict[str, Any] = json.loads(document())
    return found


def test_the_committed_document_is_the_newest(openapi: dict[str, Any]) -> None:
    assert json.loads(FILE.read_text()) == openapi, "write it anew: python -m tests.services.openapi"


def test_every_route_says_what_it_does_returns_and_refuses(openapi: dict[str, Any]) -> None:
    operations = [item for path in openapi["paths"].values() for item in path.values()]
    assert len({item["operationId"] for item in operations}) == len(operations) > 15
    for item in operations:
        name = item["operationId"]
        assert item["description"], name
        assert {"401", "403", "404", "409", "415", "422", "502", "503"} <= item["responses"].keys(), name
        (media,) = item["responses"]["200"]["content"].values()
        assert "$ref" in media["schema"] or media["schema"] == {"type": "string"}, name
        for status, answer in item["responses"].items():
            if status != "200":
                assert "application/problem+json" in answer["content"], (name, status)


def test_every_parameter_is_described_by_the_docstring_of_its_route(openapi: dict[str, Any]) -> None:
    parameters = openapi["paths"]["/api/pipelines/{pipeline}/batches"]["get"]["parameters"]
    texts = {item["name"]: item.get("description") for item in parameters}
    everywhere = [
        parameter
        for path in openapi["paths"].values()
        for item in path.values()
        for parameter in item.get("parameters", ())
    ]

    assert texts["pipeline"] == "name of the pipeline"
    assert texts["partition"] == "only batches of the partition of this id"
    assert texts["search"] == (
        "only the batch of this name, such as ``orders-0#17``; or, if the text is not a batch's name, only batches of "
        "partitions whose id contains it"
    )
    assert texts["cursor"] == "value of ``next`` in the previous page; None for the first page"
    assert [item["name"] for item in everywhere if not item.get("description")] == []


def test_every_model_and_parameter_has_a_type(openapi: dict[str, Any]) -> None:
    for name, schema in openapi["components"]["schemas"].items():
        assert schema.get("description"), name
        assert schema.get("additionalProperties") is False or schema["type"] == "string", name
    for path in openapi["paths"].values():
        for item in path.values():
            for parameter in item.get("parameters", ()):
                assert parameter["schema"].keys() & {"type", "anyOf", "$ref"}, parameter
