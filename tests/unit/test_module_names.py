"""Names of modules describe their content, in the words of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_ckpt.config.installed_connectors import installed_connectors, types_with

PACKAGE = Path(__file__).parents[2] / "airflow_provider_ckpt"
MIGRATIONS = PACKAGE / "ledger" / "migrations" / "versions"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if MIGRATIONS not in path.parents)
"""All modules but the migrations, whose names are stored in ledgers as revisions."""

NAMELESS = {"common", "utils", "util", "misc", "helpers", "tools", "stuff", "base"}
BASE_CLASSES = {Path("operators/base.py"): "CkptOperator", Path("sensors/base.py"): "CkptSensor"}
ROLES = ("source", "reader", "sink", "writer", "store")
PRIVATE_WORDS = {"letters", "box", "gate", "cut", "acting", "people", "again", "looking"}
"""Words of this project alone; ``docs/glossary.rst`` has the ones to use."""


def names(module: Path) -> list[str]:
    """Return the names of a module's packages and its own; a package is named by its folder."""
    return [*module.parts[:-1], *([] if module.name == "__init__.py" else [module.stem])]


def private_words(name: str) -> set[str]:
    """Return the private words in a name; a dead letter is none."""
    return PRIVATE_WORDS & set(name.replace("dead_letters", "").split("_"))


def test_no_module_has_a_name_that_says_nothing() -> None:
    nameless = {module for module in MODULES if NAMELESS & {name.strip("_") for name in names(module)}}

    assert nameless == set(BASE_CLASSES)


@pytest.mark.parametrize(("module", "name"), BASE_CLASSES.items(), ids=str)
def test_a_module_named_base_holds_the_base_class(module: Path, name: str) -> None:
    assert f"\nclass {name}(" in (PACKAGE / module).read_text("utf-8")


def test_no_module_has_a_name_of_a_private_vocabulary() -> None:
    found = {module: words for module in MODULES for name in names(module) if (words := private_words(name))}

    assert found == {}


@pytest.mark.parametrize(
    ("name", "words"),
    [("letters", {"letters"}), ("kafka_box", {"box"}), ("replay_dead_letters", set()), ("executor", set())],
)
def test_a_private_word_is_found_in_a_name(name: str, words: set[str]) -> None:
    assert private_words(name) == words


def built_in_paths() -> list[tuple[str, str, str]]:
    """Return type, role and module of each class that a built-in connector names."""
    found = []
    for kind, connector in installed_connectors():
        for part in filter(None, (connector.source, connector.sink, connector.dead_letter_store)):
            for role in ROLES:
                path = getattr(part, role, None)
                module = path.partition(":")[0] if isinstance(path, str) else None
                name = "dead_letter_store" if role == "store" else role
                found += [(kind, name, module)] if module and module.startswith("airflow_provider_ckpt.") else []
    return found


@pytest.mark.parametrize(("kind", "role", "module"), built_in_paths())
def test_a_role_has_the_same_file_name_in_every_connector(kind: str, role: str, module: str) -> None:
    assert module == f"airflow_provider_ckpt.connectors.{kind}.{role}"


def test_every_sink_has_a_file_for_its_fence() -> None:
    assert [kind for kind in types_with("sink") if not (PACKAGE / "connectors" / kind / "fence.py").is_file()] == []
