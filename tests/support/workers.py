"""Processes that work until they are killed, and workflows that are known to one test alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection

from supervision.agent import registered
from supervision.workflow import _newest, _workflows
from tests.support import forked

ENVIRON = {"LOG_LEVEL": "CRITICAL", "SUPERVISION_COMPLETE_WITHIN": "2", "SUPERVISION_FAILURE_THRESHOLD": "1000"}


@contextmanager
def registries_kept() -> Iterator[None]:
    """Forget at the end which agents and workflows were registered in the block."""
    registries: tuple[dict[Any, Any], ...] = (registered, _workflows, _newest)
    before = [dict(registry) for registry in registries]
    yield
    for registry, kept in zip(registries, before, strict=True):
        registry.clear()
        registry.update(kept)


@contextmanager
def two_workers(module: str, calls: Path) -> Iterator[list[subprocess.Popen[Any]]]:
    """Two processes of this module, which append their calls to this file, on the test's database. They are killed at the end."""
    command = [sys.executable, "-m", module, str(connection.settings_dict["NAME"]), str(calls)]
    workers = [forked.Popen(command, cwd=forked.ROOT, env={**os.environ, **ENVIRON}) for _ in range(2)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
