"""Gunicorn's settings beside those of the Procfile; read from the directory it is started in."""

from __future__ import annotations

from gunicorn.arbiter import Arbiter

# A worker that refuses to start ends the whole role, with the exit code that the other roles have then.
Arbiter.WORKER_BOOT_ERROR = 1
