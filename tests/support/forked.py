"""Starts Python programs quickly: a server that has imported the libraries forks a process for each start.

More than half of the CPU time of a start is the import of libraries. The server imports those that the tests' process has
imported, and none of our modules. So the forked process reads its settings from its own environment and imports our code
itself, as a process that the shell started does. A warm server has imported our code as well.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = (sys.prefix, sys.base_prefix)
PR_SET_PDEATHSIG = 1
OF_ROLES = (  # the roles import these, and the tests do not
    "aiosmtpd.smtp",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.worker.consumer",
)
OF_TESTS = ("pytest", "_pytest", "xdist", "execnet", "hypothesis", "schemathesis", "playwright")
OF_ITS_PLACE = ("gunicorn",)  # keeps the directory in which it was imported, and would run the code there


class Server:
    """The process that forks. It starts with its first request.

    environ: its environment. warm: a module that it imports, too; the forked processes have its settings and our code already.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, *, warm: str = "") -> None:
        self._environ, self._warm = environ, warm
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def ask(self, request: dict[str, Any], *fds: int) -> Any:
        """Send one request; returns its answer."""
        with self._lock:
            if self._connection is None:
                self._connection = self._start()
            socket.send_fds(self._connection, [json.dumps(request).encode()], fds)
            return json.loads(self._connection.recv(1000))

    def _start(self) -> socket.socket:
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {name: value for name, value in self._environ.items() if not name.startswith(("PYTEST", "DJANGO_SETTINGS"))}
        command = [sys.executable, "-m", "tests.support.forked", str(other.fileno()), self._warm]
        with other:
            subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[other.fileno()], start_new_session=True)
        files = {name: str(getattr(module, "__file__", None)) for name, module in tuple(sys.modules.items())}
        names = [name for name, file in files.items() if file.startswith(LIBRARIES) and not name.startswith(OF_TESTS + OF_ITS_PLACE)]
        ours.send(json.dumps([*names, *OF_ROLES]).encode())
        return ours

    def close(self) -> None:
        """End the server. The kernel kills the processes that it forked."""
        if self._connection is not None:
            self._connection.close()


COLD = Server()


def state_of(pid: int) -> str:
    """The letter of a process's state in /proc: T for one that is frozen; empty where there is none or it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0].removesuffix("Z")
    except OSError:
        return ""


class _Started(subprocess.Popen[Any]):
    """A program that the system starts, in a group of its own."""

    def __init__(self, *args: Any, server: Server = COLD, **how: Any) -> None:
        self._server = server
        super().__init__(*args, **{**how, "start_new_session": True})


class _Forked(_Started):
    """`subprocess.Popen` for a Python program, or a shell's command that ends with `exec PROGRAM`; always in a group of its own."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        cwd, env, pipes = rest[4], dict(rest[5] or os.environ), rest[9:15]
        words = [str(word) for word in args]
        if words[:2] == ["/bin/sh", "-c"]:  # let the shell expand the words, one a line
            printed = words[2].replace("exec ", r"exec printf '%s\n' ", 1)
            words = subprocess.run([*words[:2], printed], env=env, cwd=cwd, capture_output=True, text=True, check=True).stdout.splitlines()
        words[0] = shutil.which(words[0], path=env.get("PATH")) or words[0]
        with Path(os.devnull).open("rb") as null:
            given = [one if one != -1 else usual for one, usual in ((pipes[0], null.fileno()), (pipes[3], 1), (pipes[5], 2))]
            self.pid = self._server.ask({"argv": words, "env": env, "cwd": str(cwd or Path.cwd())}, *given)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if not flags:
            with suppress(ProcessLookupError):
                watched = os.pidfd_open(self.pid)
                try:
                    select.select([watched], [], [])
                finally:
                    os.close(watched)
        status = self._server.ask({"poll": self.pid})
        return (0, 0) if status is None else (self.pid, status)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            ended, status = self._try_wait(os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode


Popen = _Forked if sys.platform == "linux" else _Started  # other systems have neither these sockets nor prctl


def run(command: list[str], *, timeout: float = 120, **how: Any) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run(command, capture_output=True, text=True, check=False)`."""
    with Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


# ------------------------------------------------------------------------------------------------------------ the server


def _serve(connection: socket.socket, warm: str) -> dict[str, Any] | None:
    """Answer requests until the tests end (None); in a forked process, return the request."""
    for name in json.loads(connection.recv(1 << 20)):
        with suppress(Exception):  # some need settings: the forked process imports these
            importlib.import_module(name)
    if warm:
        importlib.import_module(warm)
    gc.freeze()
    ended: dict[int, int] = {}
    while True:
        data, fds, *_ = socket.recv_fds(connection, 1 << 20, 3)
        if not data:
            return None
        request: dict[str, Any] = json.loads(data)
        if "poll" in request:
            pid = request["poll"]
            gone, status = os.waitpid(pid, os.WNOHANG) if pid not in ended else (0, 0)
            ended |= {pid: status} if gone else {}
            connection.send(json.dumps(ended.get(pid)).encode())
        elif pid := os.fork():
            ended.pop(pid, None)  # the system reuses process ids
            with suppress(OSError):  # here too: a test may kill the group before the process runs
                os.setpgid(pid, pid)
            for fd in fds:
                os.close(fd)
            connection.send(json.dumps(pid).encode())
        else:
            connection.close()
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
                os.close(fd)
            return request


def die_with_the_parent() -> None:
    """Let the kernel kill this process when the process that forked it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(argv: list[str], env: dict[str, str], cwd: str) -> None:
    """Run the program in the forked process, with this environment."""
    with suppress(OSError):
        os.setpgid(0, 0)
    die_with_the_parent()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.path[1:1] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if Path(argv[0]).name.startswith("python"):
        argv = argv[1:]
    if argv[0] == "-m":
        sys.path[0], sys.argv = cwd, argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.path[0], sys.argv = "", ["-c", *argv[2:]]
        exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - as `python -c`
    else:
        sys.path[0], sys.argv = str(Path(argv[0]).parent), argv
        runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    wanted = _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    if wanted is not None:
        _become(**wanted)
