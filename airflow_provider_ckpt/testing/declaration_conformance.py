"""Test the conformance of a connector's declaration: its entry point, its keys, and the classes that it names."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from airflow_provider_ckpt.config.connector import Connector
from airflow_provider_ckpt.config.connector_section import ConnectorSection
from airflow_provider_ckpt.config.installed_connectors import connector_path, find_connector
from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.typed_sections import Side, section_model
from airflow_provider_ckpt.connectors.registry import load
from airflow_provider_ckpt.connectors.sink_protocol import Committer, Sink, Writer
from airflow_provider_ckpt.connectors.source_protocol import Reader, Source
from airflow_provider_ckpt.core.errors import ConfigError

HEAVY_MODULES = frozenset({"airflow", "numpy", "pandas", "pyarrow", "pyspark", "sqlalchemy"})
"""Modules that a connector's declaration must not import, since every process that parses a DAG imports the
declaration."""

_OTHER_HALF: Mapping[str, Mapping[str, Any]] = {
    "source": {"type": "files", "path": "/in", "format": "parquet"},
    "sink": {"type": "files", "path": "/out", "format": "parquet"},
}

_ROLES: Mapping[str, Mapping[str, type]] = {
    "source": {"source": Source, "reader": Reader},
    "sink": {"sink": Sink, "writer": Writer, "committer": Committer},
}


class DeclarationConformance(ABC):
    """Conformance suite of a connector's declaration, to be subclassed by the connector's tests.

    :cvar kind: type of the connector, under which it is installed
    :cvar source: a valid section ``source`` with the keys that the type requires; None if the connector has no source
    :cvar sink: a valid section ``sink`` with the keys that the type requires; None if the connector has no sink
    :cvar transform: section ``transform`` that the source requires, such as ``decode``
    """

    kind: ClassVar[str]
    source: ClassVar[Mapping[str, Any] | None] = None
    sink: ClassVar[Mapping[str, Any] | None] = None
    transform: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture
    def connector(self) -> Connector:
        """Return the installed connector."""
        return find_connector(self.kind)

    @pytest.fixture
    def sides(self, connector: Connector) -> list[Side]:
        """Return ``source``, ``sink`` or both: the sections of a declaration that the connector supports."""
        both: tuple[Side, Side] = ("source", "sink")
        return [side for side in both if getattr(connector, side) is not None]

    def declare(self, side: Side, **changes: Any) -> Pipeline:
        """Return a valid pipeline whose source or sink is of the connector's type.

        :param side: section of the connector: ``source`` or ``sink``
        :param changes: keys of the section to change
        """
        document: dict[str, Any] = {"name": "conformance", **_OTHER_HALF}
        document[side] = {"type": self.kind, **getattr(self, side), **changes}
        if side == "source":
            document["transform"] = self.transform
        return build(document)

    def test_the_connector_has_what_the_suite_has_keys_for(self, connector: Connector, sides: list[Side]) -> None:
        assert connector.source or connector.sink or connector.dead_letter_store
        assert sides == [side for side, keys in (("source", self.source), ("sink", self.sink)) if keys is not None]

    def test_the_declaration_is_light(self) -> None:
        module = connector_path(self.kind).partition(":")[0]
        code = f"import json, sys, {module}; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603

        assert HEAVY_MODULES & set(json.loads(done.stdout)) == set()

    def test_a_declaration_reads_back_as_the_same_pipeline(self, sides: list[Side]) -> None:
        for side in sides:
            pipeline = self.declare(side)

            assert build(json.loads(json.dumps(pipeline.document()))) == pipeline

    def test_a_section_names_its_place(self, sides: list[Side]) -> None:
        for side in sides:
            section: ConnectorSection = getattr(self.declare(side), side)

            assert section.place_key in type(section).model_fields
            assert section.place

    def test_an_unknown_key_is_refused_by_its_name(self, sides: list[Side]) -> None:
        for side in sides:
            with pytest.raises(ConfigError, match=rf"{side}\.no_such_key: unknown key"):
                self.declare(side, no_such_key=1)

    def test_a_missing_key_is_refused_by_its_name(self, sides: list[Side]) -> None:
        for side in sides:
            fields = section_model(side, self.kind).model_fields
            for key in [name for name, field in fields.items() if field.is_required() and name != "type"]:
                without = {name: value for name, value in (getattr(self, side) or {}).items() if name != key}

                with pytest.raises(ConfigError, match=rf"{side}\.{key}: missing; "):
                    build({"name": "conformance", **_OTHER_HALF, side: {"type": self.kind, **without}})

    def test_the_classes_that_it_names_have_the_methods_of_the_protocols(
        self, connector: Connector, sides: list[Side]
    ) -> None:
        for side in sides:
            section, part = getattr(self.declare(side), side), getattr(connector, side)
            for role, protocol in _ROLES[side].items():
                path = getattr(part, role)
                path = path(section) if callable(path) else path
                found = load(path) if path is not None else None
                if inspect.isclass(found):  # a declaration may name a function that creates the object, too
                    assert _methods(protocol) - {name for name in dir(found) if callable(getattr(found, name))} == set()


def _methods(protocol: type) -> set[str]:
    """Return the names of a protocol's public methods."""
    return {name for name, value in vars(protocol).items() if inspect.isfunction(value) and not name.startswith("_")}
