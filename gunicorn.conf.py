"""Gunicorn's settings in addition to those of the Procfile. Gunicorn reads this file from its working directory."""

from __future__ import annotations

from gunicorn.arbiter import Arbiter

# A worker that refuses to start ends the whole web role with exit code 1, like the other roles.
Arbiter.WORKER_BOOT_ERROR = 1
