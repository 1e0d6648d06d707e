"""Starts workers in a tenth of a second: this process has imported everything and forks a worker for each request.

    python -m tests.crash.zygote

One JSON request per line on standard input, one JSON answer per line on standard output. A forked worker has its own
session and its own connections; tests kill and freeze it like any process. No connection is open before a fork.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connections

from sasproject.celery import app
from sasproject.children import PR_SET_PDEATHSIG
from sasproject.env import env_bool
from supervision import conf

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")

_ended: dict[int, int] = {}


def fork(arguments: list[str], environ: dict[str, str], log: str) -> int:
    """Start `manage.py ARGUMENTS`; returns its process id."""
    pid = os.fork()
    if pid:
        _ended.pop(pid, None)  # the system reuses process ids
        return pid
    code = 1
    try:
        os.setsid()
        die_with_the_parent()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(environ)
        # The settings were read before the fork, so this one is read again from the new environment.
        settings.SUPERVISION = {**settings.SUPERVISION, "LOCAL_PICKUP": env_bool("SUPERVISION_LOCAL_PICKUP", default=True)}
        conf.get.cache_clear()
        call_command(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def die_with_the_parent() -> None:
    """Let the kernel kill this process when the zygote ends, which is when the tests close its standard input or die."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def poll(pid: int) -> int | None:
    """The exit status of a process that has ended (negative: the signal that ended it), None while it runs."""
    if pid not in _ended:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            _ended[pid] = os.waitstatus_to_exitcode(status)
    return _ended.get(pid)


def answer(request: dict[str, Any]) -> Any:
    """The answer to one request."""
    if "fork" in request:
        return fork(request["fork"], request["environ"], request["log"])
    return poll(request["poll"])


if __name__ == "__main__":
    django.setup()
    app.loader.import_default_modules()
    app.finalize()
    connections.close_all()  # loading the application opens connections, which a child must not share
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
