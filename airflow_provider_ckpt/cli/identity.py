"""Who gives a command, why, and whether they are sure."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from argparse import Namespace

from airflow_provider_ckpt.core.errors import ConfigError


def who() -> str:
    """The operating system's user on this host; not what the environment says, which anyone can set."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may run under a number that has no name
        name = str(uid)
    return f"cli:{name}@{socket.gethostname()}"


def why(args: Namespace, *, required_by: str | None = None) -> str | None:
    """The reason as the person gave it.

    :param required_by: what asks for one, where it is not optional
    :raises ConfigError: if there must be one and there is none
    """
    given: str = (args.reason or "").strip()
    if required_by and not given:
        raise ConfigError(f"{required_by} needs a reason.", hint="Say why with --reason; the audit trail keeps it.")
    return given or None


def confirm(args: Namespace, question: str) -> None:
    """Ask for a yes, unless ``--yes`` gave it.

    :raises ConfigError: if the answer is anything else, or there is nobody to ask
    """
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody is there to confirm it.", hint="Add --yes if you are sure.")
    print(f"{question} Type yes: ", end="", file=sys.stderr, flush=True)  # noqa: T201  # standard output is the result's
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("not confirmed; nothing was done.")
