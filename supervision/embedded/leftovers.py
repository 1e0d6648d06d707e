"""Removes what a killed server left: processes that outlived the launcher, and files that name dead processes.

Used by `server.py` before each start. The caller holds the directory's lock, so nothing found here is in use.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def end_leftovers(data_dir: Path, sockets: Path) -> None:
    """End a server that outlived its launcher, and remove its pid and socket files. The caller must hold the lock."""
    for how, patience in ((signal.SIGINT, 10), (signal.SIGQUIT, 5), (signal.SIGKILL, 5)):
        pids = _processes_in(data_dir)
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        deadline = time.monotonic() + patience
        while _processes_in(data_dir) and time.monotonic() < deadline:
            time.sleep(0.02)
    if sys.platform.startswith("linux"):
        # PostgreSQL takes any process with the recorded pid for its predecessor, even a zombie or an unrelated process.
        for stale in (data_dir / "postmaster.pid", sockets / ".s.PGSQL.5432.lock", sockets / ".s.PGSQL.5432"):
            stale.unlink(missing_ok=True)


def _processes_in(data_dir: Path) -> list[int]:
    """The server's living processes: all of them work in the data directory."""
    if not sys.platform.startswith("linux"):
        return _postmaster_by_ps(data_dir)
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if Path(os.readlink(entry / "cwd")) == data_dir and _executable(entry).startswith("postgres"):
                pids.append(int(entry.name))
    return pids


def _executable(entry: Path) -> str:
    """The process's name, empty for a zombie."""
    name, _, state = (entry / "stat").read_text().partition("(")[2].rpartition(")")
    return "" if state.split()[0] == "Z" else name


def _postmaster_by_ps(data_dir: Path) -> list[int]:
    try:
        pid = int((data_dir / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return []
    asked = ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)]  # -ww: the whole line, however wide the terminal is
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return [pid] if "postgres" in found and str(data_dir) in found and not found.startswith("Z") else []
