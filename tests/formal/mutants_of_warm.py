"""Mutants of the warm engine: who may use a standing driver, which driver serves a run, and what a kill ends."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_DRIVER = "engines/standing_driver.py"
_DRIVERS = "engines/standing_drivers.py"
_SERVER = "spark/driver/run_server.py"
_TESTS = "tests/unit/engines/test_standing_drivers.py"
_KILL = "tests/unit/engines/test_warm_kill.py"
_KEY = "tests/unit/engines/test_warm.py"
_SERVED = "tests/unit/spark/driver/test_run_server.py"
_USERS = "tests/integration/engines/test_warm.py::test_another_user_reaches_nothing_of_a_driver_and_gets_no_answer"
_OTHERS = "tests/integration/engines/test_other_users.py"

OF_WARM: Sequence[Mutant] = (
    Mutant(
        "a standing driver answers another user",
        _SERVER,
        "RunServer._answer_request",
        "not standing_protocol.is_same_user(connection)",
        "False",
        test=_USERS,
    ),
    Mutant(
        "a run trusts the socket of another user",
        _DRIVER,
        "StandingDriver._connect_to",
        "pid and standing_protocol.is_same_user(connection)",
        "True",
        test=f"{_OTHERS}::test_a_socket_of_another_user_is_no_driver_even_in_this_user_s_directory",
    ),
    Mutant(
        "drivers are looked for in a directory of another user",
        "engines/runtime_directory.py",
        "open_runtime_directory",
        "found.st_uid != os.geteuid() or mode != stat.S_IRWXU",
        "mode != stat.S_IRWXU",
        test=f"{_OTHERS}::test_a_runtime_directory_that_another_user_put_there_is_not_used",
    ),
    Mutant(
        "a stop leaves what killed drivers left",
        _DRIVERS,
        "StandingDrivers.stop",
        "driver.remove_directory()",
        "None",
        test=f"{_TESTS}::test_a_stop_deletes_what_killed_drivers_left",
    ),
    Mutant(
        "the memory of Python workers does not count",
        "spark/driver/memory.py",
        "Memory.measure",
        "_processes()",
        "[os.getpid()]",
        test="tests/unit/spark/driver/test_memory.py::test_a_driver_is_replaced_when_a_worker_or_java_has_grown",
    ),
    Mutant(
        "two runs start a standing driver each",
        _DRIVERS,
        "StandingDrivers._starting",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        test=f"{_TESTS}::test_runs_that_begin_together_start_one_driver",
    ),
    Mutant(
        "drivers are started in a runtime directory that was removed",
        _DRIVERS,
        "StandingDrivers._starting",
        "not os.path.samestat(self._path.stat(), os.fstat(self._descriptor))",
        "False",
        test=f"{_TESTS}::test_a_runtime_directory_that_was_made_anew_is_not_started_in",
    ),
    Mutant(
        "a driver during whose start packages changed serves runs",
        _DRIVERS,
        "StandingDrivers._start",
        "find_key() != key",
        "False",
        test=f"{_TESTS}::test_a_driver_during_whose_start_packages_changed_serves_nobody",
    ),
    Mutant(
        "a failed start delays no other",
        "engines/failed_starts.py",
        "FailedStarts.check",
        "failure.key == key and 0 <= age < DELAY_SECONDS",
        "False",
        test=f"{_TESTS}::test_a_start_that_fails_releases_those_who_wait_and_is_reported",
    ),
    Mutant(
        "the process that got the pid of a driver is taken for the driver",
        _DRIVER,
        "_pid",
        "of_process(int(pid)) == owner",
        "True",
        test=f"{_TESTS}::test_a_process_that_got_the_pid_of_a_driver_is_not_killed",
    ),
    Mutant(
        "a process of another session is killed",
        _DRIVER,
        "_kill",
        "os.getsid(pid) == session",
        "True",
        test=f"{_TESTS}::test_a_process_that_gets_a_pid_between_the_list_of_processes_and_the_kill_is_not_killed",
    ),
    Mutant(
        "the key of a driver does not depend on what is installed",
        "engines/driver_key.py",
        "driver_key",
        "[_version(directory) for directory in _installed()]",
        "[]",
        test=f"{_KEY}::test_a_key_depends_on_the_code_and_on_what_is_installed",
    ),
    Mutant(
        "the key of a driver does not depend on static properties",
        "engines/driver_key.py",
        "driver_key",
        "sorted(static.items())",
        "[]",
        test=f"{_KEY}::test_a_key_depends_on_what_a_running_spark_cannot_change",
    ),
    Mutant(
        "a driver works for a client that has given up",
        _SERVER,
        "RunServer._serve_run",
        "run.client_gone or connection.recv(1) != standing_protocol.BELL",
        "False",
        test=f"{_SERVED}::test_a_client_that_has_gone_keeps_its_job_for_another_driver",
    ),
    Mutant(
        "a driver with runs is stopped to make room",
        _SERVER,
        "RunServer._stop",
        "not (when == 'if idle' and self._runs)",
        "True",
        test=f"{_SERVED}::test_a_driver_with_runs_is_not_stopped_to_make_room",
    ),
    Mutant(
        "each further wave is lost after Spark has stopped",
        "spark/driver/serve.py",
        "serve",
        "if is_stopped(spark):\n    raise",
        "",
        test="tests/unit/spark/driver/test_serve.py"
        "::test_a_wave_is_reported_as_lost_unless_spark_has_stopped_and_would_lose_the_next_ones[True]",
    ),
    Mutant(
        "a driver that accepts a run after it was killed keeps it",
        "engines/warm.py",
        "StandingEngine._is_accepted",
        "if self._left:\n    self._leave(0)",
        "",
        test=f"{_KILL}::test_a_driver_that_accepts_a_run_which_was_left_meanwhile_loses_it_at_once",
    ),
    Mutant(
        "a kill leaves the run with its driver",
        "engines/warm.py",
        "StandingEngine.kill",
        "self._leave(_KILL_SECONDS)",
        "None",
        test=f"{_KILL}::test_a_kill_in_the_middle_of_a_wave_ends_the_run_with_one_error",
    ),
)
