"""Every command can be called, has the common arguments, and is documented with its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from inspect import getclosurevars
from pathlib import Path

import pytest
from airflow.cli.cli_config import ActionCommand, CLICommand, GroupCommand
from airflow.cli.cli_parser import get_parser

from airflow_provider_ckpt.__main__ import add_commands
from airflow_provider_ckpt.cli.arguments import COMMON
from airflow_provider_ckpt.cli.commands import get_ckpt_commands
from airflow_provider_ckpt.core.ranges import START
from tests.services.restored_logging import restored_logging

DOCS = (Path(__file__).parents[3] / "docs/cli.rst").read_text("utf-8")
CHANGING = {
    *("drain", "stop", "resume", "hold", "release", "skip", "rewind", "replay range", "recover", "adopt"),
    *("accept-sink", "move", "schema accept"),
    *("lease", "gc", "pipeline delete", "db downgrade", "dlq replay", "dlq discard"),
}


def commands(tree: list[CLICommand], *path: str) -> Iterator[tuple[str, ActionCommand]]:
    """Every command by its words."""
    for item in tree:
        if isinstance(item, GroupCommand):
            yield from commands(list(item.subcommands), *path, item.name)
        else:
            yield " ".join((*path, item.name)), item


ALL = {words.removeprefix("ckpt "): command for words, command in commands(get_ckpt_commands())}
EACH = pytest.mark.parametrize("words", ALL)


def flags(command: ActionCommand) -> set[str]:
    """The long options of its own."""
    own = [each for each in command.args if each not in COMMON]
    return {flag for each in own for flag in each.flags if flag.startswith("--")}


def documented(words: str) -> str:
    """Return the documentation of a command, up to the next one."""
    found = re.search(rf"^``airflow ckpt {words}(?: .*)?``\n((?:   .*\n|\n)+)", DOCS, re.MULTILINE)
    assert found is not None, f"docs/cli.rst says nothing of airflow ckpt {words}"
    return found[1]


def test_these_are_the_commands() -> None:
    groups = {
        "": "run validate plan status inspect audit recover rewind drain stop resume hold release skip lease gc adopt "
        "accept-sink move",
        "database": "show run status",
        "replay": "range",
        "dlq": "list show export replay discard",
        "pipeline": "list show delete",
        "db": "migrate check downgrade",
        "db roles": "ledger sink source",
        "schema": "history accept",
        "spark": "status start stop",
    }
    expected = {f"{group} {name}".strip() for group, names in groups.items() for name in names.split()}

    assert set(ALL) == expected


@EACH
def test_a_command_leads_to_code(words: str) -> None:
    path: str = getclosurevars(ALL[words].func).nonlocals["import_path"]
    module, _, name = path.rpartition(".")

    assert callable(getattr(import_module(module), name))


@EACH
def test_a_command_takes_what_all_of_them_share(words: str) -> None:
    assert set(COMMON) <= set(ALL[words].args)


@EACH
def test_a_command_is_documented_with_its_options(words: str) -> None:
    said = documented(words)

    assert {flag for flag in flags(ALL[words]) if f"``{flag}" not in said} == set()


def test_the_docs_know_no_other_command() -> None:
    told = {found.strip() for found in re.findall(r"^``airflow ckpt ([a-z -]+)", DOCS, re.MULTILINE)}

    assert told == set(ALL)


def test_whatever_changes_something_can_be_tried_first() -> None:
    assert {words for words, command in ALL.items() if "--dry-run" in flags(command)} == CHANGING


@pytest.mark.parametrize("words", ["skip", "rewind", "adopt", "pipeline delete", "dlq discard"])
def test_a_person_who_overrides_must_say_why(words: str) -> None:
    (reason,) = [each for each in ALL[words].args if "--reason" in each.flags]

    assert reason.kwargs["required"] is True


def test_a_position_may_be_pasted_from_a_table() -> None:
    add_commands()

    def parsed(text: str) -> object:
        return get_parser().parse_args(f"ckpt rewind orders --to-position {text} --reason again".split()).to_position

    assert parsed("336,776") == 336_776
    assert parsed("start") == START


@pytest.mark.parametrize(
    "line", ["ckpt rewind orders --to-position x --reason y", "ckpt hold orders", "ckpt db downgrade"]
)
def test_a_wrong_call_ends_with_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    add_commands()

    with pytest.raises(SystemExit) as ended:
        get_parser().parse_args(line.split())

    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "rights", "creates"),
    [("", "INSERT", False), ("--upsert", "INSERT, SELECT, UPDATE", False), ("--create", "INSERT", True),
     ("--replace", "INSERT, SELECT, DELETE", True)],
)  # fmt: skip
def test_the_script_of_a_sinks_roles_grants_what_the_options_say(
    options: str, rights: str, creates: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    add_commands()
    line = f"ckpt db roles sink dwh --table t --pipeline p --writer w {options}"
    args = get_parser().parse_args(line.split())

    with restored_logging():
        args.func(args)

    script = capfd.readouterr().out
    assert f'GRANT {rights} ON "dwh"."t" TO "w";' in script
    assert ('GRANT CREATE ON SCHEMA "dwh" TO "w";' in script) is creates
    assert ('REVOKE CREATE ON SCHEMA "dwh" FROM "w";' in script) is not creates
