"""Shell that stays open, like that of a reader who types the documentation's commands one after the other."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Self

from tests.services.docs import Block

OMITTED = "…"
"""On a page: lines that are there, but not shown."""


@dataclass(frozen=True)
class Shown:
    """A command and the lines that the page shows below it."""

    command: str
    output: tuple[str, ...]


def commands(block: Block) -> list[Shown]:
    """The commands of a console block; one goes on after a backslash."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if parts[0].strip():
        raise ValueError(f"{block}: begins with no command")
    return [_command(part) for part in parts[1:]]


def _command(part: str) -> Shown:
    lines = part.splitlines()
    last = next(number for number, line in enumerate(lines) if not line.endswith("\\"))
    output = [line for line in lines[last + 1 :] if line.strip() not in ("", OMITTED)]
    return Shown("\n".join(lines[: last + 1]), tuple(output))


class Terminal:
    """Bash in a directory. Use as a context manager; what is left in the background ends with it.

    :param here: the working directory
    :param env: its environment
    """

    def __init__(self, here: Path, env: Mapping[str, str]) -> None:
        self._here = here
        self._env = dict(env)
        self._mark = secrets.token_hex(8)

    def __enter__(self) -> Self:
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self._here,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        if kind is not None:
            self._bash.kill()
        self._bash.wait(20)

    def type(self, command: str, seconds: float = 180) -> tuple[int, str]:
        """Run a command to its end; its exit status and what it wrote.

        :param seconds: how long it may take; the shell is killed then
        """
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        script = self._here / f".typed-{self._mark}"
        script.write_text(f"{command}\n")
        self._bash.stdin.write(f"set -m; . {script} </dev/null; printf '\\n{self._mark} %s\\n' $?\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        limit = Timer(seconds, self._bash.kill)
        limit.start()
        try:
            for line in self._bash.stdout:
                if line.startswith(self._mark):
                    return int(line.split()[1]), "".join(lines)
                lines.append(line)
        finally:
            limit.cancel()
        raise TimeoutError(f"{command}: did not end in {seconds:.0f} s:\n{''.join(lines)}")

    def follow(self, block: Block) -> None:
        """Do what a console block says: every command succeeds, and writes what the page shows."""
        for shown in commands(block):
            status, output = self.type(shown.command)
            assert status == 0, f"{block}: {shown.command} ended with {status}:\n{output}"
            missing = not_shown(shown.output, output, varies="varies" in block.options.get("class", ""))
            assert not missing, f"{block}: {shown.command} did not write {missing!r}, but\n{output}"


def not_shown(expected: tuple[str, ...], output: str, *, varies: bool) -> str:
    """The first line that is expected and does not follow in the output; empty if all do. Others may stand between.

    :param varies: whether a number may be any other one
    """
    written = iter([_plain(line, varies=varies) for line in output.splitlines()])
    return next((line for line in expected if _plain(line, varies=varies) not in written), "")


def _plain(line: str, *, varies: bool) -> str:
    line = " ".join(line.split())
    return re.sub(r"\d[\d,]*", "0", line) if varies else line
