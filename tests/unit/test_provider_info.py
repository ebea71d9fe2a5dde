"""The provider's description holds what Airflow's schema wants, and names nothing that is not there."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import airflow
import jsonschema  # type: ignore[import-untyped]
import pytest

from airflow_provider_ckpt import get_provider_info

INFO = get_provider_info()


def resolve(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def test_it_holds_before_airflows_schema() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)
    assert INFO["package-name"] == "airflow-provider-ckpt"


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
