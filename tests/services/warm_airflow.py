"""Command ``airflow`` without the seconds that importing Airflow takes: each call is a fork of one process.

:func:`airflow_in` puts a program ``airflow`` into a directory for ``PATH``. It runs with its caller's arguments,
    environment, directory and standard streams; only AIRFLOW_HOME is fixed, since Airflow reads it when it is imported.
"""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

_CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"!"], [0, 1, 2])
    server.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.recv(8) or 1))
"""


@dataclass(frozen=True)
class WarmAirflow:
    """A process that has imported Airflow, by :func:`airflow_in`.

    :param home: the AIRFLOW_HOME with which it was imported
    :param program: the command ``airflow``
    """

    home: Path
    program: Path

    @property
    def command(self) -> list[str]:
        """The command line that runs ``airflow``."""
        return [str(self.program)]


@contextmanager
def airflow_in(directory: Path, env: Mapping[str, str], within: Sequence[str] = ()) -> Iterator[int]:
    """Put the command ``airflow`` into ``directory``; the id of the process that all its calls are forks of.

    :param env: the environment in which Airflow is imported, AIRFLOW_HOME included
    :param within: a program that executes the command line after its own arguments, in another namespace, say
    """
    address = str(directory / "airflow.socket")
    client = directory / "airflow"
    client.write_text(_CLIENT.format(python=sys.executable, address=address))
    client.chmod(0o755)
    here = Path(__file__).parents[2]
    server = subprocess.Popen(
        [*within, sys.executable, "-m", __name__, address], env=dict(env), cwd=here, stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        if b"ready\n" not in server.stdout:  # before that line, what Airflow imports may write others
            raise RuntimeError(f"airflow could not be imported: exit status {server.wait()}")
        yield server.pid
    finally:
        server.terminate()
        server.wait(20)


def main(address: str) -> None:
    """Import Airflow, then serve one call after the other, each in a process of its own."""
    from airflow.api_fastapi.execution_api.app import InProcessExecutionAPI
    from airflow.cli.cli_parser import get_parser
    from airflow.models import import_all_models
    from sqlalchemy.orm import configure_mappers

    import airflow_provider_ckpt.cli
    from airflow_provider_ckpt.__main__ import add_commands

    add_commands()
    get_parser()
    import_all_models()  # type: ignore[no-untyped-call]
    configure_mappers()
    for module in pkgutil.iter_modules(airflow_provider_ckpt.cli.__path__):
        import_module(f"{airflow_provider_ckpt.cli.__name__}.{module.name}")
    InProcessExecutionAPI().app  # imports what `airflow dags test` needs  # noqa: B018
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        print("ready", flush=True)
        while True:
            caller, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                caller.sendall(str(_call(caller)).encode())
                os._exit(0)
            caller.close()


def _call(caller: socket.socket) -> int:
    """Run a call in this process, and return its exit status."""
    from airflow.__main__ import main as airflow

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(caller, 1, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    arguments, directory, environment = json.loads(caller.makefile("rb").read())
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["airflow", *arguments]
    status = 0
    try:
        airflow()  # type: ignore[no-untyped-call]
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    main(sys.argv[1])
