"""Ends a process whose launcher was killed, on systems whose kernel does not (`sasproject.children`): macOS is one."""

from __future__ import annotations

import os
import signal
import threading
import time

PARENT = "SAS_PARENT"  # the launcher's process id, in the environment of its children
LOOK_SECONDS = 1.0
STOP_SECONDS = 25.0  # longer than a role takes to stop


def watch() -> None:
    """End this process as SIGTERM does, once its launcher is gone. Does nothing where no launcher has asked for it."""
    launcher = os.environ.pop(PARENT, "")  # the children of this process have another parent
    if launcher:
        threading.Thread(target=_watch, args=(int(launcher),), name="launcher", daemon=True).start()


def _watch(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
