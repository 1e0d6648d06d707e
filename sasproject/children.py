"""Starts, logs, restarts and stops the child processes of the launcher. It does not know what they do.

One thread starts all of them. The kernel ends a child when the *thread* that started it dies (`_die_with_parent`), so
the children of a killed launcher end, too. Where it cannot, they look for the launcher themselves (`orphans`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sasproject import orphans

PR_SET_PDEATHSIG = 1
KERNEL_ENDS_THEM = sys.platform.startswith("linux")  # a test says otherwise
CRASH_SECONDS = 5.0  # a child that ends sooner than this after its start is restarted after a pause
LONGEST_PAUSE = 30.0
LONGEST_LINE = 300
TROUBLE = re.compile(rb"\b(ERROR|CRITICAL)\b")
# An outage logs the same error again and again. The console shows so many lines in so many seconds; the file has every line.
TROUBLE_LINES, TROUBLE_SECONDS = 3, 10.0


@dataclass
class Child:
    """One role: how it is started, and its process when it runs."""

    name: str
    command: list[str]
    env: dict[str, str]
    ready_when: bytes | None = None  # the text in its log that says that it works
    keep: bool = True  # start it again when it ends
    process: subprocess.Popen[bytes] | None = None
    ready: bool = False
    output: bytes = b""  # an unfinished line
    last_lines: list[str] = field(default_factory=list)
    started: float = 0.0
    pause: float = 0.0
    due: float | None = None  # when to start it again
    unlogged: bool = False  # its last line could not be written to its log
    shown: list[float] = field(default_factory=list)  # when its last errors went to the console

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self.process.pid if self.process and self.process.poll() is None else None


class Children:
    """All child processes. Each has a log file; errors are also shown on the console."""

    def __init__(self, log_dir: Path, say: Callable[[str, str], None], on_change: Callable[[], None]) -> None:
        self.by_name: dict[str, Child] = {}
        self._log_dir = log_dir
        self._say = say
        self._on_change = on_change
        self._files: dict[str, IO[bytes]] = {}
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        log_dir.mkdir(parents=True, exist_ok=True)

    def start(self, child: Child) -> None:
        """Start it; its output is read by `pump`."""
        if child.name not in self.by_name:
            path = self._log_dir / f"{child.name}.log"
            if path.exists():
                path.replace(path.with_suffix(".log.1"))
            self._files[child.name] = path.open("ab", buffering=0)
            self.by_name[child.name] = child
        child.ready, child.output, child.due, child.started = False, b"", None, time.monotonic()
        child.process = subprocess.Popen(
            child.command,
            env=child.env if KERNEL_ENDS_THEM else {**child.env, orphans.PARENT: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the launcher only, which stops the others in order
            preexec_fn=_die_with_parent,
        )
        stdout = child.process.stdout
        if stdout is not None:
            os.set_blocking(stdout.fileno(), False)
            self._selector.register(stdout, selectors.EVENT_READ, child)

    def pump(self, timeout: float = 0.1) -> None:
        """Write waiting log lines, notice children that have ended, and restart those whose pause is over."""
        for key, _ in self._selector.select(timeout):
            self._read(key.data, key.fileobj)  # type: ignore[arg-type]
        for child in list(self.by_name.values()):
            if child.process is not None and child.process.poll() is not None and child.due is None:
                self._ended(child)
            if child.due is not None and time.monotonic() >= child.due and not self._stopping:
                self.start(child)
                self._on_change()

    def stop(self, names: Iterable[str], patience: float) -> None:
        """Send SIGTERM to these in order and wait for all of them. After `patience` seconds, kill those that still run."""
        self._stopping = True
        children = [self.by_name[name] for name in names if name in self.by_name]
        for child in children:
            self._signal(child, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while any(child.pid for child in children) and time.monotonic() < deadline:
            self.pump(0.05)
        for child in children:
            if child.pid:
                self._say(child.name, f"did not stop within {patience:.0f} s; killed")
                self._signal(child, signal.SIGKILL, group=True)
                if child.process is not None:
                    child.process.wait(5)

    def kill(self) -> None:
        """End all of them now."""
        self._stopping = True
        for child in self.by_name.values():
            self._signal(child, signal.SIGKILL, group=True)

    def _signal(self, child: Child, number: signal.Signals, *, group: bool = False) -> None:
        if child.pid:
            if group:
                os.killpg(child.pid, number)
            else:
                os.kill(child.pid, number)

    def _ended(self, child: Child) -> None:
        assert child.process is not None  # noqa: S101 - for the type checker; the caller looked
        if child.process.stdout is not None and not child.process.stdout.closed:
            self._read(child, child.process.stdout)
            self._forget(child.process.stdout)
        code = child.process.returncode
        if self._stopping or not child.keep:
            child.due = float("inf")
            return
        # Its own children (the web role has some) still hold ports and connections.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.process.pid, signal.SIGKILL)
        lived = time.monotonic() - child.started
        child.pause = 0.0 if lived > CRASH_SECONDS else min(LONGEST_PAUSE, child.pause * 2 or 1.0)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if code > 0 and child.last_lines:
            how = f"{how} ({child.last_lines[-1][:LONGEST_LINE]})"
        self._say(child.name, f"{how}; starting it again{f' in {child.pause:.0f} s' if child.pause else ''}")
        child.due = time.monotonic() + child.pause

    def _read(self, child: Child, stdout: IO[bytes]) -> None:
        while True:
            try:
                chunk = os.read(stdout.fileno(), 65536)
            except BlockingIOError:
                return
            except (OSError, ValueError):
                chunk = b""
            if not chunk:
                self._forget(stdout)
                return
            *lines, child.output = (child.output + chunk).split(b"\n")
            for line in lines:
                self._line(child, line)

    def _line(self, child: Child, line: bytes) -> None:
        self._log(child, line)
        text = line.decode(errors="replace")
        child.last_lines = [*child.last_lines[-30:], text]
        if child.ready_when is not None and child.ready_when in line:
            child.ready = True
        if TROUBLE.search(line):
            self._show_trouble(child, text)

    def _log(self, child: Child, line: bytes) -> None:
        try:
            self._files[child.name].write(line + b"\n")
        except OSError as problem:  # a full disk ends no role
            if not child.unlogged:
                self._say(child.name, f"its log cannot be written: {problem.strerror}")
            child.unlogged = True
        else:
            child.unlogged = False

    def _show_trouble(self, child: Child, text: str) -> None:
        now = time.monotonic()
        child.shown = [at for at in child.shown if now - at < TROUBLE_SECONDS]
        if len(child.shown) < TROUBLE_LINES:
            child.shown.append(now)
            last = len(child.shown) == TROUBLE_LINES
            self._say(child.name, text[:LONGEST_LINE] + (f" (more in {child.name}.log)" if last else ""))

    def _forget(self, stdout: IO[bytes]) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(stdout)
        stdout.close()


def _die_with_parent() -> None:
    """Ask the kernel to kill this child when the launcher is killed: a crash of all processes at once does no harm."""
    if KERNEL_ENDS_THEM:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
