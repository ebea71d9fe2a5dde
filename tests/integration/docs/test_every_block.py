"""The documentation builds without a warning, and every code block in it is run or parsed."""

from __future__ import annotations

import configparser
import json
import os
import pickle
import re
import runpy
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from airflow.configuration import conf
from airflow.sdk import DAG, task
from docutils import nodes

from airflow_provider_ckpt.assets.work import work_asset
from airflow_provider_ckpt.config.database import load as database
from airflow_provider_ckpt.config.load import build, load, parse
from airflow_provider_ckpt.config.warnings import warnings
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.iceberg.catalog import CatalogAddress
from airflow_provider_ckpt.connectors.jdbc.client import driver_properties
from airflow_provider_ckpt.connectors.kafka.client import client_config
from airflow_provider_ckpt.connectors.sql.installed_dialects import find_dialect
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.dag_factories.databases import database_dag
from airflow_provider_ckpt.dag_factories.pipelines import pipeline_dag, pipeline_dags
from airflow_provider_ckpt.operators.plan import CkptPlanOperator
from tests.integration.airflow.ckpt import Ckpt
from tests.integration.docs.printed import DRAWINGS, ELSEWHERE, WHOLE, elsewhere
from tests.integration.docs.reader import EXAMPLES
from tests.integration.docs.test_commands import FOLLOWED
from tests.integration.ledger.ledger_driver import LedgerDriver
from tests.services.dag_parsing import dag_bag
from tests.services.docs import PAGES, ROOT, Block, blocks_of, every_block

BLOCKS = [block for block in every_block() if block.page not in WHOLE]
INCLUDED = sorted({block.included.resolve() for block in BLOCKS if block.included})
PIPELINE: dict[str, Any] = {
    "name": "orders",
    "source": {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id"},
    "sink": {"type": "postgres", "connection": "warehouse", "table": "orders"},
}
RUN_HERE = {"yaml", "python", "json", "ini"}


def each(language: str) -> pytest.MarkDecorator:
    """One case for each block of a language that a page holds itself."""
    found = [block for block in BLOCKS if block.language == language and not block.included and not elsewhere(block)]
    return pytest.mark.parametrize("block", found, ids=str)


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as Sphinx understands it, without a warning; ``make docs`` writes its pages."""
    here = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "-E", "-W", "--keep-going", "-q", "-b", "dummy", "-d", str(here / "trees"), "docs"]
    env = {**os.environ, "AIRFLOW_HOME": str(here / "airflow")}
    done = subprocess.run(
        [sys.executable, *command, str(here / "html")], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return here


@pytest.fixture(scope="module")
def literals(site: Path) -> dict[str, list[nodes.Element]]:
    """By page, everything that is shown as a block, wherever it comes from."""
    found = {}
    for tree in (site / "trees").glob("*.doctree"):
        document = pickle.loads(tree.read_bytes())
        found[f"docs/{tree.stem}.rst"] = [
            node for kind in (nodes.literal_block, nodes.doctest_block) for node in document.findall(kind)
        ]
    return found


def in_docstring(node: nodes.Element) -> bool:
    return "docstring of" in str(node.source)


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_no_block_of_a_page_is_overlooked(literals: dict[str, list[nodes.Element]], page: str) -> None:
    assert len([node for node in literals[page] if not in_docstring(node)]) == len(blocks_of(page))


def test_the_examples_in_docstrings_work(literals: dict[str, list[nodes.Element]]) -> None:
    shown = [node.astext() for found in literals.values() for node in found if in_docstring(node)]
    known = {"DAG": DAG, "task": task, "pyarrow": pa, "__file__": str(EXAMPLES / "example.py")}
    known |= {"pipeline_dag": pipeline_dag, "pipeline_dags": pipeline_dags, "database_dag": database_dag}
    known |= {"work_asset": work_asset}

    examples = [text for text in shown if "→" not in text]

    assert len(examples) == 5
    for text in examples:
        with DAG("example", schedule=None):
            exec(text, dict(known))


# Every block has a way to be run


def test_every_block_is_run_somewhere() -> None:
    for block in BLOCKS:
        if block.language == "console":
            typed = block.page in FOLLOWED or elsewhere(block)
            assert typed, f"{block}: no test types these commands; add the page to test_commands.py"
        elif block.language != "text":
            assert block.language in RUN_HERE or elsewhere(block), f"{block}: nothing runs {block.language}"


def test_there_are_no_other_pictures() -> None:
    assert Counter(block.page for block in BLOCKS if block.language == "text") == DRAWINGS


def test_nothing_is_left_out_that_is_not_there() -> None:
    for page, start in ELSEWHERE:
        assert [block for block in BLOCKS if block.page == page and block.text.startswith(start)], (page, start)


def test_every_link_of_the_readme_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)]+)\)", (ROOT / "README.md").read_text("utf-8")):
        assert (ROOT / target).exists(), target


# Files that pages include


@pytest.mark.parametrize(
    "file", sorted({block.included for block in BLOCKS if block.included}), ids=lambda file: file.name
)
def test_an_included_file_works(file: Path) -> None:
    if file.suffix == ".yaml":
        assert load(file) if file.parent.name == "pipelines" else yaml.safe_load(file.read_text())
    elif file.parent.name == "examples":
        assert "assert" in file.read_text()
        runpy.run_path(str(file))
    else:
        bag = dag_bag(file)
        assert bag.dags
        assert not bag.import_errors
        assert not bag.captured_warnings


# Blocks that pages hold themselves


@each("yaml")
def test_a_pipeline_is_one(block: Block) -> None:
    document = yaml.safe_load(block.text)
    if "database" in document:
        assert database.parse(block.text, block.page).name == document["name"]
        return

    pipeline = parse(block.text, block.page) if "name" in document else build({**PIPELINE, **document}, block.page)

    assert warnings(pipeline) == []


@each("python")
def test_a_dag_file_makes_tasks_that_find_their_pipeline(block: Block, tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    for declared in blocks_of(block.page):
        if declared.language == "yaml":
            (tmp_path / declared.text.splitlines()[0].removeprefix("# ")).write_text(declared.text)
    (tmp_path / "file.py").write_text(block.text)

    bag = dag_bag(tmp_path / "file.py")

    assert not bag.import_errors
    (dag,) = bag.dags.values()
    plan = dag.get_task("replicate.plan")
    assert isinstance(plan, CkptPlanOperator)
    assert plan.load_pipeline().name == dag.dag_id


@each("ini")
def test_a_setting_is_one_of_airflows_or_ours(block: Block) -> None:
    settings = configparser.ConfigParser()
    settings.read_string(block.text)

    for section in settings.sections():
        for name in settings[section]:
            assert name in conf.configuration_description[section]["options"]


def kafka(extra: dict[str, Any]) -> None:
    """Kafka's client takes it; it is asked for nothing, and the broker is nobody."""
    from confluent_kafka import Producer

    instead = {"bootstrap.servers": "127.0.0.1:1", "ssl.ca.location": ssl.get_default_verify_paths().cafile}
    Producer(
        {**client_config(Connection("stream", "kafka", login="ann", password="secret", extra=extra), "docs"), **instead}
    )


def iceberg(extra: dict[str, Any]) -> None:
    """The Iceberg library knows the catalog and its properties."""
    from pyiceberg.catalog import CatalogType, infer_catalog_type
    from pyiceberg.catalog.rest import OAUTH2_SERVER_URI

    address = CatalogAddress.of(Connection("lake", "generic", extra=extra))
    kind = infer_catalog_type(address.name, dict(address.properties))

    known = {"type", "uri", "warehouse", "name"} | ({OAUTH2_SERVER_URI} if kind is CatalogType.REST else set())
    assert kind is CatalogType(extra["type"])
    assert set(extra) <= known


def jdbc(extra: dict[str, Any]) -> None:
    """The driver gets it as it stands."""
    assert driver_properties(Connection("shop", "jdbc", extra=extra)) == extra["properties"]


def sql(extra: dict[str, Any]) -> None:
    """A dialect takes each key of it."""
    scheme = extra.get("sqlalchemy_scheme", "mysql+pymysql")
    dialect = find_dialect(Connection("shop", "mysql" if len(extra) > 1 else "generic", extra=extra), "sink")

    assert (dialect.drivername, dialect.tested) == (scheme, scheme == "mysql+pymysql")
    taken = dialect.connect_args(Connection("shop", "mysql", extra=extra))
    assert set(extra) <= {*taken, "ssl_mode", "sqlalchemy_scheme"}
    assert ("ssl" in taken) == ("ssl_mode" in extra)


def s3_policy(policy: dict[str, Any]) -> None:
    """Every kind of request that the package sends is allowed, on the prefixes and nothing else."""
    statements = policy["Statement"]
    listing, objects = statements

    assert {statement["Effect"] for statement in statements} == {"Allow"}
    assert listing["Action"] == "s3:ListBucket"
    assert set(objects["Action"]) == {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"}
    bucket, prefixes = listing["Resource"], listing["Condition"]["StringLike"]["s3:prefix"]
    assert objects["Resource"] == [f"{bucket}/{prefix}" for prefix in prefixes]


READERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "docs/kafka.rst": kafka,
    "docs/iceberg.rst": iceberg,
    "docs/jdbc.rst": jdbc,
    "docs/sql.rst": sql,
    "docs/object-stores.rst": s3_policy,
}


@each("json")
def test_a_document_is_read_by_what_it_is_for(block: Block, ckpt: Ckpt, orders: LedgerDriver, tmp_path: Path) -> None:
    document = json.loads(block.text)
    if "files" in document:
        (tmp_path / "orders.yaml").write_text("name: orders\nsource:\n  typ: files\nsink: {type: delta, path: /out}\n")
        told, _ = ckpt.failed("validate", str(tmp_path / "orders.yaml"))
        assert shape(told) == shape(document)
        ((said,), (shown,)) = told["files"], document["files"]
        assert shape(said) == shape(shown)
        assert said["problems"][0].removeprefix(f"{tmp_path}/") == shown["problems"][0]
        return
    if "pipelines" in document:
        several_pipelines(document, ckpt, tmp_path)
        return
    if block.page in READERS:
        READERS[block.page](document)
        return
    orders.plan(10)
    made = ckpt.json("hold", "orders", "t#0", "--reason", document["reason"])

    assert block.page == "docs/cli.rst"
    assert shape(made) == shape(document)
    assert (made["action"], made["pipeline"], made["reason"]) == (
        document["action"],
        document["pipeline"],
        document["reason"],
    )


def several_pipelines(document: dict[str, Any], ckpt: Ckpt, folder: Path) -> None:
    """The result of several files has what the page shows, for one that is run and fails and for one that is not."""
    names = "orders", "people", "people_again"
    files = [folder / f"{name}.yaml" for name in names]
    source = {"type": "files", "path": str(folder / "missing"), "format": "parquet"}
    for name, file in zip(names, files, strict=True):
        declared = {"name": name.removesuffix("_again"), "source": source, "sink": {"type": "delta", "path": "/out"}}
        file.write_text(yaml.safe_dump(declared))
    told, _ = ckpt.failed("run", *map(str, files))
    (shown,) = document["pipelines"]

    assert shape(told) == {"pipelines": "list"}
    unnamed = {**shape(shown), "pipeline": "NoneType"}
    assert [shape(said) for said in told["pipelines"]] == [shape(shown), unnamed, unnamed]
    assert (told["pipelines"][0]["pipeline"], told["pipelines"][0]["state"]) == (shown["pipeline"], shown["state"])


def shape(value: Any) -> Any:
    """Names and types, without the values."""
    return {name: shape(item) for name, item in value.items()} if isinstance(value, dict) else type(value).__name__


# Messages


def test_the_readmes_mistake_is_answered_as_it_says() -> None:
    declared, shown = (next(b for b in blocks_of("README.md") if b.language == name) for name in ("yaml", "text"))
    with pytest.raises(ConfigError) as caught:
        parse(declared.text.replace("mode:", "mod:"), "orders.yaml")

    assert f"{caught.value}\n" == shown.text


def test_an_error_says_what_the_page_says(ckpt: Ckpt, tmp_path: Path) -> None:
    (shown,) = (block.text.strip() for block in blocks_of("docs/errors.rst") if block.language == "text")
    source = {"type": "files", "path": str(tmp_path / "in")}
    document = {**PIPELINE, "source": source, "transform": {"decode": "json", "schema": "id int"}}
    document["sink"] = {"type": "files", "path": str(tmp_path / "out"), "format": "jsonl"}
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(document))

    told = ckpt.refused("run", str(tmp_path / "orders.yaml"))

    assert told == f"error: {shown}".replace("/data/in", str(tmp_path / "in"))
