"""List the code blocks of the documentation that are not run with the others, each with the reason."""

from __future__ import annotations

from tests.services.docs import Block

WHOLE = ("docs/tutorial.rst", "docs/tutorial-database.rst", "docs/connectors.rst")
"""Pages that are followed as a whole, by ``test_tutorial*.py`` and ``test_connectors_page.py`` in ``tests/system``."""

ELSEWHERE = {
    ("docs/recovery.rst", "import os"): "asks a running Airflow: tests/system/airflow/test_recovery.py does",
    ("docs/recovery.rst", "question ="): "the same",
    ("docs/clusters.rst", "$ python -m venv"): "downloads a gigabyte into a new environment",
    ("docs/install.rst", "$ AIRFLOW="): "the same",
    ("docs/install.rst", "$ pip install --force-reinstall"): "the same; make compat installs PySpark in this way",
    ("docs/development.rst", "$ make help"): "is this test suite itself",
    ("docs/development.rst", "$ make docs"): "is done by test_every_block.py, elsewhere than in docs/",
    (
        "docs/development.rst",
        "$ make package",
    ): "leaves files in dist/; tests/unit/test_long_description.py is the test",
    ("docs/development.rst", "$ make ui"): "needs Node; continuous integration runs it",
    ("docs/development.rst", "$ make compat"): "runs a part of this test suite several times",
    ("docs/development.rst", "$ make test-airflow"): "is a part of this test suite",
    ("docs/development.rst", "$ make chaos"): "takes 90 minutes",
    ("docs/development.rst", "$ make soak"): "takes an hour",
    ("docs/development.rst", "$ make bench-pg"): "takes half an hour",
    ("docs/development.rst", "$ make formal"): "takes ten minutes",
    ("docs/sql.rst", "-- MySQL and MariaDB: a sink"): "tests/integration/connectors/sql/test_rights.py grants them",
    ("docs/sql.rst", "$ pip install 'airflow-provider-ckpt[testing]'"): "tests/integration/cli/test_conformance.py",
    ("README.md", "$ make demo"): "is the demo, and this test suite itself",
}
"""Blocks by page and beginning. Of commands it is only checked that targets, options and extras exist."""

DRAWINGS = {
    "docs/architecture.rst": 2,
    "docs/errors.rst": 1,
    "docs/install.rst": 1,
    "docs/ledger.rst": 1,
    "docs/recovery.rst": 1,
    "README.md": 1,
}
"""Number of the blocks of a page that are pictures and messages."""


def elsewhere(block: Block) -> str | None:
    """Return the reason for which a block is not run with the others."""
    reasons = ELSEWHERE.items()
    return next(
        (reason for (page, start), reason in reasons if page == block.page and block.text.startswith(start)), None
    )
