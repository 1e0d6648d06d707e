"""Child processes of a measurement. Each has its own process group and log, and ends with the measurement."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PR_SET_PDEATHSIG = 1
# Without our Django settings: with them in its environment, a peer's Celery would behave as in a Django program.
INHERITED = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}


@dataclass(frozen=True)
class Command:
    """How to start one process. name: also of its log. words: the command line. env: additional variables."""

    name: str
    words: Sequence[str]
    env: Mapping[str, str]
    cores: frozenset[int] | None = None


class Children:
    """The child processes of one measurement."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, command: Command) -> subprocess.Popen[bytes]:
        """Start it. Its output goes to its log."""
        self.logs.mkdir(parents=True, exist_ok=True)

        def begin() -> None:
            if command.cores:
                os.sched_setaffinity(0, command.cores)
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        with (self.logs / f"{command.name}.log").open("ab") as log:
            process = subprocess.Popen(
                list(command.words),
                cwd=ROOT,
                env={**INHERITED, **command.env, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=begin,
            )
        self.running[command.name] = process
        return process

    def run(self, command: Command, *, patience: float = 600) -> str:
        """Start it, wait for its end, and return its output. Raises ChildFailed if it failed."""
        process = self.start(command)
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill([command.name])
            raise ChildFailed(f"{command.name} did not end in {patience:.0f} s") from None
        del self.running[command.name]
        if code != 0:
            raise ChildFailed(f"{command.name} failed: {self.last_words(command.name)}")
        return (self.logs / f"{command.name}.log").read_text(errors="replace")

    def stop(self, names: Sequence[str] | None = None, patience: float = 10.0) -> None:
        """Send SIGTERM, and after `patience` seconds SIGKILL to those that still run."""
        chosen = [name for name in (list(self.running) if names is None else names) if name in self.running]
        for name in chosen:
            self._signal(name, signal.SIGTERM)
        deadline = time.monotonic() + patience
        for name in chosen:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.running[name].wait(max(0.05, deadline - time.monotonic()))
        self.kill(chosen)

    def kill(self, names: Sequence[str] | None = None) -> None:
        """Send SIGKILL to all process groups first, then wait for each of them."""
        chosen = list(self.running) if names is None else names
        for name in chosen:
            self._signal(name, signal.SIGKILL)
        for name in chosen:
            self.running.pop(name).wait()

    def _signal(self, name: str, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.running[name].pid, number)

    def pids(self, *prefixes: str) -> list[int]:
        """The process ids of the children whose names begin with one of these."""
        return [process.pid for name, process in self.running.items() if name.startswith(prefixes)]

    def dead(self) -> str | None:
        """A message about a child that has ended by itself, if there is one."""
        for name, process in self.running.items():
            if process.poll() is not None:
                return f"{name} ended with {process.returncode}: {self.last_words(name)}"
        return None

    def last_words(self, name: str) -> str:
        """The end of its log."""
        lines = (self.logs / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-3:])[-400:]


class ChildFailed(RuntimeError):
    """A child process failed; the message has the end of its log."""


@contextmanager
def children(logs: Path) -> Iterator[Children]:
    """A group of child processes, all of them ended on exit."""
    group = Children(logs)
    try:
        yield group
    finally:
        group.stop()
