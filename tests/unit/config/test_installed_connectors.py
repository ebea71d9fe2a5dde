"""Connectors are found by their entry points; only a connector's own code names its type."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from airflow_provider_ckpt.config import installed_connectors
from airflow_provider_ckpt.config.connector import Connector
from airflow_provider_ckpt.config.installed_connectors import (
    GROUP,
    ConnectorError,
    UnknownTypeError,
    connector_path,
    find_connector,
    types_with,
    use_paths,
)
from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.engines.code_zip import CodeZip

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "airflow_provider_ckpt"
SOURCES = ["files", "jdbc", "kafka", "postgres", "sql"]
SINKS = ["delta", "files", "iceberg", "kafka", "postgres", "sql"]
DECLARATION = {
    "name": "orders",
    "source": {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id"},
    "sink": {"type": "delta", "path": "/t"},
}
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution with entry points, and with a module of its name that has a connector and a number."""

    def add(name: str, points: str) -> None:
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
        (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n", "utf-8")
        text = "from airflow_provider_ckpt.config.connector import Connector\nCONNECTOR = Connector()\nNUMBER = 5\n"
        (tmp_path / f"{name}.py").write_text(text, "utf-8")

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(installed_connectors, "_known_paths", {})
    installed_connectors._claims.cache_clear()
    yield add
    installed_connectors._claims.cache_clear()


def test_the_entry_points_of_the_package_are_its_connectors() -> None:
    registered = {
        name for name, found in installed_connectors._claims().items() for path in found.values() if GROUP in path
    }

    assert registered == installed_connectors._built_in() == {*SOURCES, *SINKS}
    assert (types_with("source"), types_with("sink")) == (SOURCES, SINKS)
    assert types_with("dead_letter_store") == ["files", "kafka", "postgres"]


def test_a_connector_of_another_distribution_is_found(install: Install) -> None:
    install("rabbit", "rabbit = rabbit:CONNECTOR")

    assert isinstance(find_connector("rabbit"), Connector)
    assert connector_path("rabbit") == "rabbit:CONNECTOR"


def test_a_type_of_two_distributions_is_refused_with_both_names(install: Install) -> None:
    install("rabbit", "postgres = rabbit:CONNECTOR")

    with pytest.raises(
        ConfigError, match=r"source: type postgres is claimed by the connectors of two distributions"
    ) as caught:
        build(DECLARATION)
    assert re.search(r"airflow-provider-ckpt( \d\S*)? and rabbit 1\.0; uninstall one", caught.value.message)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (
            "nowhere:CONNECTOR",
            "cannot be imported: ModuleNotFoundError: No module named 'nowhere'; reinstall or update",
        ),
        ("rabbit:OTHER", "cannot be imported: AttributeError: module 'rabbit' has no attribute 'OTHER'; reinstall"),
        ("rabbit:NUMBER", "is of type int instead of Connector; report this to its authors"),
    ],
)
def test_a_broken_connector_is_an_error_of_its_own_pipelines_alone(install: Install, target: str, says: str) -> None:
    install("rabbit", f"rabbit = {target}")

    with pytest.raises(ConfigError) as caught:
        build({**DECLARATION, "sink": {"type": "rabbit"}})

    assert f"sink: the connector of type rabbit, {target} of rabbit 1.0, {says}" in caught.value.message
    assert build(DECLARATION).sink.type == "delta"
    assert types_with("sink") == SINKS


def test_only_the_connectors_that_a_pipeline_names_are_loaded() -> None:
    code = (
        "import sys\nfrom airflow_provider_ckpt.config.load import build\n"
        f"build({DECLARATION!r})\n"
        "names = [name.split('.') for name in sys.modules if name.endswith('.connector')]\n"
        "print(*sorted(name[2] for name in names if name[1] == 'connectors'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["delta", "postgres"]


def test_the_packages_own_connectors_are_found_in_a_zip_file_without_metadata(tmp_path: Path) -> None:
    CodeZip().write(tmp_path / "code.zip")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'code.zip')!r})\n"
        "from airflow_provider_ckpt.config import installed_connectors as c\n"
        "c._metadata_with_group = lambda: []\n"
        f"assert '.zip' in c.__file__ and c.types_with('sink') == {SINKS!r}, (c.__file__, c.types_with('sink'))\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_an_executor_takes_the_paths_that_the_driver_has_found(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("rabbit", "")
    monkeypatch.setattr(
        installed_connectors, "_metadata_with_group", lambda: pytest.fail("an executor searches distributions")
    )

    with pytest.raises(pytest.fail.Exception):
        find_connector("rabbit")
    use_paths({"rabbit": "rabbit:CONNECTOR", "hare": "hare:CONNECTOR"})
    assert isinstance(find_connector("rabbit"), Connector)
    with pytest.raises(ConnectorError, match="install its distribution for the Python of Spark's executors, too"):
        find_connector("hare")


@pytest.mark.parametrize("kind", ["two_phase", "local", "arrow_types", "../x", "", "kafka.connector", "Kafka"])
def test_a_name_that_is_no_type_is_not_imported(kind: str) -> None:
    with pytest.raises(UnknownTypeError):
        find_connector(kind)


TYPES = {*SOURCES, *SINKS}
CONNECTION_TYPES = ("connection.type", "connection.conn_type")
"""Airflow's types of connections, some of which have the name of a connector."""

SAMPLES = {"cli/spark.py", "engines/class_archive_training.py"}
"""Modules that declare a pipeline of their own; what they name are values of keys of that pipeline."""

TOOLS = {
    "cli/roles.py",
    "ledger/store/roles.py",
    "spark/dead_letters/originals.py",
    "spark/dead_letters/replay_reader.py",
    "testing/declared_sql_sink.py",
}
"""Modules that use functions of a connector for another purpose than a pipeline's source or sink."""


def is_of_connector(module: Path) -> bool:
    """Return whether a module belongs to a connector, or is loaded by a connector's declaration alone."""
    parts = module.relative_to(PACKAGE).parts
    return (
        (parts[0] == "connectors" and parts[1] in TYPES) or parts == ("spark", "jdbc.py") or parts[0] == "example_dags"
    )


def constants(node: ast.AST) -> set[object]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}


def named_types(text: str) -> list[str]:
    """Return the places of a module that compare with a type, map from types, allow types alone, or import one."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            named = bool(constants(node) & TYPES) and ast.unparse(node.left) not in CONNECTION_TYPES
        elif isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            named = bool(keys) and set(keys) <= TYPES
        elif isinstance(node, ast.Subscript):
            named = ast.unparse(node.value) == "Literal" and bool(constants(node.slice) & TYPES)
        elif isinstance(node, ast.ImportFrom):
            named = any((node.module or "").startswith(f"{GROUP}.{kind}") for kind in TYPES - {"files"})
            named = named or f"{node.module}.".startswith(f"{GROUP}.files.")
        else:
            named = False
        found += [f"line {getattr(node, 'lineno', 0)}: {ast.unparse(node)[:80]}"] if named else []
    return found


def test_nothing_but_a_connector_names_its_type() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if not is_of_connector(path)]
    found = {str(path.relative_to(PACKAGE)): named_types(path.read_text("utf-8")) for path in modules}

    assert {name: lines for name, lines in found.items() if lines and name not in TOOLS | SAMPLES} == {}
    assert len(modules) > 300


@pytest.mark.parametrize(
    "text",
    [
        "x = pipeline.source.type == 'kafka'",
        "x = sink.type in ('postgres', 'kafka')",
        "x = {'delta': 1, 'iceberg': 2}",
        "type: Literal['files', 'jdbc']",
        "from airflow_provider_ckpt.connectors.postgres.client import quote",
    ],
)
def test_a_module_that_names_a_type_is_found(text: str) -> None:
    assert len(named_types(text)) == 1


@pytest.mark.parametrize(
    "module", sorted((PACKAGE / "connectors").glob("*/connector.py")), ids=lambda path: path.parent.name
)
def test_what_a_connector_imports_when_it_is_used_exists(module: Path) -> None:
    here = f"airflow_provider_ckpt.connectors.{module.parent.name}"
    named = re.findall(r'"\{_HERE\}((?:\.\w+)+):(\w+)"', module.read_text("utf-8"))

    assert named
    assert [(path, name) for path, name in named if not hasattr(import_module(here + path), name)] == []
