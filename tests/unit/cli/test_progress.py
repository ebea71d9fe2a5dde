"""A long command shows on standard error that it is working."""

from __future__ import annotations

import io
import logging

import pytest

from airflow_provider_ckpt.cli import progress as shown
from airflow_provider_ckpt.cli.progress import progress


class Terminal(io.StringIO):
    """Standard error with somebody before it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_it_is_a_bar_that_goes_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")

    with progress("Collecting", total=2) as step:
        step("orders")
        step("people")

    assert "Collecting: people" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[1A\x1b[2K")
    assert capsys.readouterr().out == ""


def test_elsewhere_each_step_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=shown.__name__), progress("Collecting", total=2) as step:
        step("orders")

    assert caplog.messages == ["Collecting: orders (1 of 2)"]


def test_the_end_is_told_if_it_took_long(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_WORTH_A_LINE", -1.0)

    with caplog.at_level(logging.INFO, logger=shown.__name__), progress("Auditing orders"):
        assert caplog.messages == []

    assert caplog.messages == ["Auditing orders took 0.0 seconds"]
