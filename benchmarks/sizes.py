"""The same work beside few orders and beside many: a database of each size, and a process for each that is asked by turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from supervision.embedded.server import database_url

ROOT = Path(__file__).resolve().parent.parent
Ask = Callable[[int, str], dict[str, Any]]


def filled(directory: Path, name: str, seed: bytes) -> str:
    """The URL of a database with this name; made and filled by these statements if it is not there yet, and migrated either way."""
    url = database_url(directory, name)
    with psycopg.connect(database_url(directory), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            connection.execute(f'CREATE DATABASE "{name}"')
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=_env(url), check=True)
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT count(*) FROM (SELECT 1 FROM orders_order LIMIT 1) o").fetchone() == (0,):
            began = time.monotonic()
            connection.execute(seed)
            connection.execute("VACUUM ANALYZE")
            print(f"filled {name} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return url


@contextmanager
def asked(module: str, urls: Mapping[int, str]) -> Iterator[Ask]:
    """A process of this module for each database. The function sends one a line, and returns the JSON that it prints."""
    running = {
        count: subprocess.Popen(
            [sys.executable, "-m", module], cwd=ROOT, env=_env(url), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for count, url in urls.items()
    }

    def ask(count: int, line: str) -> dict[str, Any]:
        process = running[count]
        assert process.stdin is not None
        assert process.stdout is not None
        print(line, file=process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer

    try:
        yield ask
    finally:
        for process in running.values():
            process.communicate()


def _env(url: str) -> dict[str, str]:
    return {
        **os.environ,
        "DATABASE_URL": url,
        "DEBUG": "0",
        "SECRET_KEY": "benchmark",
        "DJANGO_SETTINGS_MODULE": "sasproject.settings",
        "ALLOWED_HOSTS": "testserver",
        "LOG_LEVEL": "ERROR",
        "CONSOLE_SECOND_FACTOR": "off",
    }
