"""The project's settings. DATABASE_URL names an empty database."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from supervision.console.theme import UNFOLD as UNFOLD

_url = urlsplit(os.environ["DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.removeprefix("/"),
        "USER": _url.username,
        "PASSWORD": unquote(_url.password or ""),
        "HOST": unquote(_url.hostname or ""),
        "PORT": _url.port or "",
    }
}
SECRET_KEY = "for a test of accounts alone"
ALLOWED_HOSTS = ["localhost"]
AUTH_USER_MODEL = "travellers.Traveller"
CELERY_BROKER_URL = "memory://"
ROOT_URLCONF = "tests.support.travellers.urls"
INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "supervision",
    "tests.support.travellers",
]
MIDDLEWARE = [
    "supervision.requestlog.middleware.recorded",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
STATIC_URL = "static/"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
