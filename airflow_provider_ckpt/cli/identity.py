"""Determine the actor and the reason of a command, and ask the user to confirm a command."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from argparse import Namespace

from airflow_provider_ckpt.core.errors import ConfigError


def actor() -> str:
    """Return the actor of a command: the operating system's user and the host, such as ``cli:ann@host7``.

    Environment variables are ignored, because anyone can set them.
    """
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may run under a uid without a name
        name = str(uid)
    return f"cli:{name}@{socket.gethostname()}"


def given_reason(args: Namespace, *, required_by: str | None = None) -> str | None:
    """Return the reason that the user gave with ``--reason``; None if it is missing or blank.

    :param args: the command's arguments
    :param required_by: name of the command if it requires a reason; None if the reason is optional
    :raises ConfigError: if a required reason is missing
    """
    given: str = (args.reason or "").strip()
    if required_by and not given:
        raise ConfigError(f"{required_by} needs a reason.", hint="Give it with --reason; the audit log stores it.")
    return given or None


def confirm(args: Namespace, question: str) -> None:
    """Ask the user to type ``yes``, unless the command was called with ``--yes``.

    :param args: the command's arguments
    :param question: the question, written to standard error
    :raises ConfigError: if the answer is not yes, or standard input is not a terminal
    """
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to confirm it.", hint="Add --yes if you are sure.")
    print(f"{question} Type yes: ", end="", file=sys.stderr, flush=True)  # noqa: T201  # standard output is the result's
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("not confirmed; nothing was done.")
