"""Tests of the actor of a command, its reason, and its confirmation."""

from __future__ import annotations

import io
import os
import pwd
import socket
from argparse import Namespace

import pytest

from airflow_provider_ckpt.cli.identity import actor, confirm, given_reason
from airflow_provider_ckpt.core.errors import ConfigError


class Terminal(io.StringIO):
    """Standard input with somebody at it."""

    def isatty(self) -> bool:
        return True


def test_a_person_is_the_systems_user_on_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.setenv("LOGNAME", "somebody-else")

    assert actor() == f"cli:{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1_000_700_000)

    assert actor() == f"cli:1000700000@{socket.gethostname()}"


def test_a_reason_is_kept_as_it_was_given() -> None:
    assert given_reason(Namespace(reason=" wait for the fix ")) == "wait for the fix"
    assert given_reason(Namespace(reason=None)) is None
    assert given_reason(Namespace(reason="disk full"), required_by="skip") == "disk full"


@pytest.mark.parametrize("given", [None, "", "  "])
def test_an_override_needs_a_reason(given: str | None) -> None:
    with pytest.raises(ConfigError, match=r"skip needs a reason\. Give it with --reason"):
        given_reason(Namespace(reason=given), required_by="skip")


@pytest.mark.parametrize("answer", ["yes\n", "Y\n"])
def test_a_yes_is_enough(answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))

    confirm(Namespace(yes=False), "Forget it?")

    assert capsys.readouterr().err == "Forget it? Type yes: "


@pytest.mark.parametrize("answer", ["no\n", "", "\n"])
def test_anything_else_is_a_no(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))

    with pytest.raises(ConfigError, match="not confirmed; nothing was done"):
        confirm(Namespace(yes=False), "Forget it?")


def test_where_nobody_can_answer_it_must_be_said_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))

    with pytest.raises(ConfigError, match="Add --yes"):
        confirm(Namespace(yes=False), "Forget it?")
    confirm(Namespace(yes=True), "Forget it?")
