"""The engine's settings without the shop: nothing but the store, the broker and the no-op workflow."""

from __future__ import annotations

import os

from sasproject.settings import *  # noqa: F403
from sasproject.settings import MIDDLEWARE as ALL_MIDDLEWARE
from sasproject.settings import SUPERVISION

INSTALLED_APPS = [
    "django.contrib.admin.apps.SimpleAdminConfig",  # no pages, nothing to discover
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django_celery_beat",
    "sasproject",
    "supervision",
    "benchmarks.noop",
]
MIDDLEWARE = [each for each in ALL_MIDDLEWARE if each.startswith("django.")]  # the shop's need the shop's applications
ROOT_URLCONF = "benchmarks.urls"
SILENCED_SYSTEM_CHECKS = ["admin.E403", "admin.E408", "admin.E409", "admin.E410"]
if os.environ.get("BENCH_AGENT_THREADS"):
    SUPERVISION["AGENT_THREADS"] = int(os.environ["BENCH_AGENT_THREADS"])
