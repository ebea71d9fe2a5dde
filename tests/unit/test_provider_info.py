"""The provider's description conforms to Airflow's schema, and names only existing classes and files."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import airflow
import jsonschema  # type: ignore[import-untyped]
import pytest

from airflow_provider_ckpt import get_provider_info

INFO = get_provider_info()
ROOT = Path(__file__).parents[2]


def resolve(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def test_it_holds_before_airflows_schema() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)
    assert INFO["package-name"] == "airflow-provider-ckpt"


def test_integrations_hold_before_the_schema_of_airflows_own_providers() -> None:
    """All but ``external-doc-url``: the documentation has no public address yet."""
    schema = json.loads((Path(airflow.__file__).parent / "provider.yaml.schema.json").read_text())
    integration = schema["properties"]["integrations"]["items"] | {"required": ["integration-name", "tags"]}
    for item in INFO["integrations"]:
        jsonschema.validate(item, integration)


def test_every_group_belongs_to_an_integration() -> None:
    integrations = {item["integration-name"] for item in INFO["integrations"]}
    assert {
        group["integration-name"] for kind in ("operators", "sensors", "hooks", "triggers") for group in INFO[kind]
    } == integrations


@pytest.mark.parametrize("kind", ["operator", "sensor"])
def test_operators_and_sensors_have_a_how_to_guide(kind: str) -> None:
    guides = [ROOT / path.lstrip("/") for item in INFO["integrations"] for path in item["how-to-guide"]]
    assert [path for path in guides if f".. _howto/{kind}:" in path.read_text("utf-8")]


def test_the_logo_is_a_picture_that_the_documentation_shows() -> None:
    [logo] = [item["logo"] for item in INFO["integrations"]]
    assert (ROOT / logo.lstrip("/")).read_text("utf-8").startswith("<svg")
    assert f'html_logo = "{logo.removeprefix("/docs/")}"' in (ROOT / "docs" / "conf.py").read_text("utf-8")


@pytest.mark.parametrize(
    "path",
    [
        *INFO["cli"],
        *INFO["db-managers"],
        *INFO["notifications"],
        *(connection["hook-class-name"] for connection in INFO["connection-types"]),
        *(uris["handler"] for uris in INFO["asset-uris"]),
        *INFO["extra-links"],
        *(decorator["class-name"] for decorator in INFO["task-decorators"]),
    ],
)
def test_every_class_and_function_exists(path: str) -> None:
    assert callable(resolve(path))


@pytest.mark.parametrize(
    "module",
    [
        m
        for kind in ("operators", "sensors", "hooks", "triggers")
        for part in INFO[kind]
        for m in part["python-modules"]
    ],
)
def test_every_module_exists(module: str) -> None:
    assert import_module(module).__doc__


def test_the_ledgers_place_has_no_default_that_would_be_written_into_airflow_cfg() -> None:
    assert INFO["config"]["ckpt"]["options"]["sql_alchemy_conn"]["default"] is None
