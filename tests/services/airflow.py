"""Real Airflow for tests: API server, scheduler with executors, DAG processor and, if wanted, further processes.

Each process has a session of its own and writes a log file in AIRFLOW_HOME; ``stop`` ends all processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from tests.services.processes import in_session

_SERVICES = ("api-server", "scheduler", "dag-processor")
_ARGUMENTS = {"worker": ("celery", "worker", "--skip-serve-logs")}
"""The commands of those services that have another name here."""

_ENDED = frozenset({"success", "failed"})
_SETTINGS = {
    "API__HOST": "127.0.0.1",
    "API__WORKERS": "1",
    "CKPT__WARM_SPARK": "False",  # it would outlive the services
    "CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
    "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "CORE__EXECUTOR": "LocalExecutor",
    "CORE__LOAD_EXAMPLES": "False",
    "CORE__PARALLELISM": "4",
    "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",  # a file that changes is parsed at once all the same
    "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
    "USAGE_DATA_COLLECTION__ENABLED": "False",
}

DATABASE_MANAGER = (
    {"DATABASE__EXTERNAL_DB_MANAGERS": "airflow_provider_ckpt.db_manager.CkptDBManager"}
    if version("apache-airflow").startswith("3.1.")
    else {}
)
"""Setting by which ``airflow db migrate`` migrates the ledger in Airflow 3.1; later ones get it from the provider."""


class AirflowServices:
    """An Airflow in a directory. Use as a context manager, or call :meth:`start` and :meth:`stop`.

    :param home: AIRFLOW_HOME; made if it is not there
    :param dags_folder: where the DAG files are
    :param env: further environment variables of every process (connections, say)
    :param triggerer: also start a triggerer, for deferrable tasks
    :param pages_only: start the API server alone, without what runs DAGs
    :param metadata: the metadata database as an SQLAlchemy URL; a SQLite file in AIRFLOW_HOME without one
    :param broker: the address of Celery's broker; with one, also start a Celery worker
    :param users: roles by user name, the administrator's first; without any, everybody is an administrator
    :param fab: let FAB's auth manager know the users, instead of the simple one
    :param program: the command ``airflow`` of :meth:`cli`; by default a new Python that imports Airflow
    """

    def __init__(
        self,
        home: Path,
        dags_folder: Path,
        env: Mapping[str, str] | None = None,
        *,
        triggerer: bool = False,
        pages_only: bool = False,
        metadata: str | None = None,
        broker: str | None = None,
        users: Mapping[str, str] | None = None,
        fab: bool = False,
        program: Sequence[str] = (sys.executable, "-m", "airflow"),
    ) -> None:
        self.home = home
        self._program = program
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        settings = {
            **_SETTINGS,
            "API__PORT": str(self.port),
            "API__SECRET_KEY": secrets.token_hex(16),
            "API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "CORE__DAGS_FOLDER": str(dags_folder),
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "DATABASE__SQL_ALCHEMY_CONN": metadata or f"sqlite:///{home}/airflow.db",
            "SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": str(_free_port()),
        }
        settings |= DATABASE_MANAGER
        if broker:
            settings["CELERY__BROKER_URL"] = broker
            settings["CELERY__RESULT_BACKEND"] = f"db+{metadata}"
        self.passwords = {name: secrets.token_hex(8) for name in users or {}}
        self._fab_users = dict(users or {}) if fab else {}
        if fab:
            settings["CORE__AUTH_MANAGER"] = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
        elif users:
            settings["CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] = "False"
            settings["CORE__SIMPLE_AUTH_MANAGER_USERS"] = ",".join(f"{name}:{role}" for name, role in users.items())
            settings["CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"] = str(home / "passwords.json")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        self.env = {
            **inherited,
            "AIRFLOW_HOME": str(home),
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "PYTHONUNBUFFERED": "1",
            **(env or {}),
        }
        others = (*["triggerer"] * triggerer, *["worker"] * bool(broker))
        self._names = _SERVICES[:1] if pages_only else (*_SERVICES, *others)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._sessions: set[int] = set()
        self._tokens: dict[str, str] = {}

    # Life

    def start(self, seconds: float = 300) -> Self:
        """Make the metadata database and the ledger, start every service, and wait until the API answers.

        :param seconds: how long to wait at most
        """
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "passwords.json").write_text(json.dumps(self.passwords))
        self.cli("db", "migrate")
        for name, role in self._fab_users.items():
            self.cli(
                *f"users create -u {name} -r {role.capitalize()} -f A -l B -e {name}@example.com -p".split(),
                self.passwords[name],
            )
        for name in self._names:
            self.launch(name)
        self.until(self._answers, seconds, "the API did not answer")
        return self

    def launch(self, name: str) -> None:
        """Start one service (again).

        :param name: as ``airflow`` knows it: ``scheduler``, say; ``worker`` for Celery's
        """
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "airflow", *_ARGUMENTS.get(name, (name,))],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes[name] = process
        self._sessions.add(process.pid)

    def pid(self, name: str) -> int:
        """The process id of a service that runs."""
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """SIGKILL one service, not the workers that it has forked: they live on as orphans."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    @property
    def services(self) -> list[str]:
        """The services that run."""
        return list(self._processes)

    def end(self, name: str) -> subprocess.Popen[bytes]:
        """Ask one service to end by SIGTERM, and return its process; from now on it need not live."""
        process = self._processes.pop(name)
        process.terminate()
        return process

    def stop(self) -> None:
        """Kill every service and all that it has started."""
        for session in self._sessions:
            for pid in in_session(session):  # a task is a process group of its own
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        self._sessions.clear()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    # What a user does

    def cli(
        self, *arguments: str, check: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``airflow`` with these arguments in this Airflow's environment.

        :param check: whether to raise an error if it fails
        :param env: variables that replace those of the environment
        """
        command = [*self._program, *arguments]
        done = subprocess.run(command, env={**self.env, **(env or {})}, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(f"airflow {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
        return done

    def trigger(
        self, dag_id: str, conf: Mapping[str, Any] | None = None, *, seconds: float = 180, user: str | None = None
    ) -> str:
        """Trigger a DAG, waiting first until it has been parsed, and return the run's id.

        :param seconds: how long to wait for the DAG at most
        """
        self.until(lambda: self._parsed(dag_id), seconds, f"the DAG {dag_id} did not appear")
        body = {"logical_date": datetime.now(UTC).isoformat(), "conf": dict(conf or {})}
        run_id: str = self.api("POST", f"/dags/{quote(dag_id)}/dagRuns", body, user=user)["dag_run_id"]
        return run_id

    def wait(self, dag_id: str, run_id: str, timeout: float = 900) -> str:
        """Wait until a DAG run has ended; its state, ``success`` or ``failed``.

        :param timeout: seconds to wait at most
        """
        self.until(lambda: self.state(dag_id, run_id) in _ENDED, timeout, f"{dag_id} {run_id} did not end")
        return self.state(dag_id, run_id)

    def state(self, dag_id: str, run_id: str) -> str:
        """The state of a DAG run now."""
        return str(self.api("GET", f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}")["state"])

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """The state of every task instance of a DAG run, by task id."""
        path = f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}/taskInstances"
        return {item["task_id"]: item["state"] for item in self.api("GET", path)["task_instances"]}

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """Return an XCom value of a task, None if there is none."""
        path = f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}/taskInstances/{quote(task_id)}/xcomEntries/{quote(key)}"
        try:
            value = self.api("GET", f"{path}?deserialize=true")["value"]
        except HTTPError as error:
            if error.code == 404:
                return None
            raise
        return json.loads(value) if isinstance(value, str) else value

    def task_log(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Everything that a task's attempts have logged."""
        folder = self.home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        return "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("*.log")))

    def api(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, user: str | None = None) -> Any:
        """Call Airflow's API.

        :param path: under ``/api/v2``
        :param user: an administrator by default
        :raises HTTPError: if it refuses
        """
        headers = {"Authorization": f"Bearer {self.token(user)}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"{self.url}/api/v2{path}", data, headers, method=method), timeout=120) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def token(self, user: str | None = None) -> str:
        """Return the token with which a user calls the API.

        :param user: an administrator by default
        """
        name = user or next(iter(self.passwords), "")
        if name not in self._tokens:
            self._tokens[name] = self._log_in(name)
        return self._tokens[name]

    def log(self, name: str) -> str:
        """Everything that a service has written."""
        return (self.home / f"{name}.log").read_text(errors="replace")

    def import_errors(self) -> str:
        """Return the import errors of DAG files; empty if there are none."""
        found = self.api("GET", "/importErrors")["import_errors"]
        return "\n".join(f"{item['filename']}: {item['stack_trace']}" for item in found)

    def _log_in(self, user: str) -> str:
        body = {"username": user, "password": self.passwords[user]} if user else None
        headers = {"Content-Type": "application/json"}
        data = json.dumps(body).encode() if body else None
        with urlopen(Request(f"{self.url}/auth/token", data, headers), timeout=10) as answer:
            return str(json.load(answer)["access_token"])

    # Waiting

    def _answers(self) -> bool:
        try:
            self.api("GET", "/version")
        except (HTTPError, URLError, OSError):
            return False
        return True

    def _parsed(self, dag_id: str) -> bool:
        try:
            self.api("GET", f"/dags/{quote(dag_id)}")
        except HTTPError as error:
            if error.code != 404:
                raise
            if errors := self.import_errors():
                raise RuntimeError(f"a DAG file cannot be imported:\n{errors}") from error
            return False
        return True

    def until(self, done: Callable[[], bool], seconds: float, otherwise: str) -> None:
        """Wait for something, as long as every service lives; print the newest lines of the logs if it fails.

        :raises TimeoutError: saying ``otherwise``
        :raises RuntimeError: if a service has ended
        """
        deadline = time.monotonic() + seconds
        while not done():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    self._print_tail(name)
                    raise RuntimeError(f"airflow {name} ended with {process.returncode}")
            if time.monotonic() > deadline:
                for name in self._processes:
                    self._print_tail(name)
                raise TimeoutError(f"{otherwise} within {seconds:.0f} s")
            time.sleep(0.25)

    def _print_tail(self, name: str, lines: int = 15) -> None:
        print(f"--- the log of {name} ends:", *self.log(name).splitlines()[-lines:], sep="\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
