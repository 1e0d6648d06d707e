"""Reads the environment. Each helper returns a typed value, or stops the start with an error that names the variable.

django-environ parses the values. The error messages are our own, one line each, because an operator reads them in the
log of a container that does not start.
"""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Any, overload
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

_env = environ.Env()

DEMO_SECRET_KEY = "demo-only-secret-key-that-DEBUG-alone-permits"  # noqa: S105 - public on purpose, refused outside DEBUG


def env_str(name: str, default: str = "") -> str:
    """The text of `name`; an empty variable counts as unset."""
    return os.environ.get(name, "").strip() or default


def env_bool(name: str, *, default: bool) -> bool:
    """`1/0`, `true/false`, `on/off`, `yes/no`."""
    raw = env_str(name).lower()
    if not raw:
        return default
    if raw in ("1", "true", "on", "yes", "y", "t"):
        return True
    if raw in ("0", "false", "off", "no", "n", "f"):
        return False
    raise ImproperlyConfigured(f"{name} must be 1 or 0, not {raw!r}.")


def env_int(name: str, default: int, *, minimum: int = 0) -> int:
    """A whole number, not below `minimum`."""
    return int(_number(name, default, minimum, int))


@overload
def env_seconds(name: str, default: float) -> float: ...
@overload
def env_seconds(name: str, default: None) -> float | None: ...
def env_seconds(name: str, default: float | None) -> float | None:
    """A positive number of seconds, or the default."""
    if not env_str(name):
        return default
    seconds = _number(name, 0, 0, float)
    if seconds <= 0:
        raise ImproperlyConfigured(f"{name} must be a number of seconds above 0, not {env_str(name)!r}.")
    return seconds


def env_percent(name: str, default: str) -> Decimal:
    """A number from 0 to 99.99, in percent."""
    raw = env_str(name) or default
    try:
        value = Decimal(raw)
    except ArithmeticError:
        value = Decimal(-1)
    if not value.is_finite() or not 0 <= value < 100:
        raise ImproperlyConfigured(f"{name} must be a number from 0 to 99.99, in percent, not {raw!r}.")
    return value


def env_list(name: str, default: list[str]) -> list[str]:
    """Comma separated values."""
    return [part.strip() for part in env_str(name).split(",") if part.strip()] or default


def env_counts(name: str) -> dict[str, int]:
    """`payment=4,shipping=2` as a dictionary; every count at least 1."""
    counts = {}
    for part in env_list(name, []):
        key, equals, number = part.partition("=")
        if not equals or not key.strip() or not number.strip().isdigit() or int(number) < 1:
            raise ImproperlyConfigured(f"{name} must look like payment=4,shipping=2, not {part!r}.")
        counts[key.strip()] = int(number)
    return counts


def env_limits(name: str) -> dict[str, Decimal]:
    """`500` for every currency, `500,JPY=60000` for others and one of its own; empty: no limit."""
    limits: dict[str, Decimal] = {}
    for part in env_list(name, []):
        currency, _equals, number = part.rpartition("=")
        try:
            amount = Decimal(number.strip())
        except ArithmeticError:
            amount = Decimal(-1)
        currency = currency.strip().upper()
        if not amount.is_finite() or amount < 0 or currency in limits or (_equals and len(currency) != 3):
            raise ImproperlyConfigured(f"{name} must be an amount such as 500, or 500,JPY=60000 with one for a currency, not {part!r}.")
        limits[currency] = amount
    return limits


def env_choice(name: str, default: str | None, choices: tuple[str, ...]) -> str | None:
    """One of `choices`, or the default."""
    value = env_str(name) or default
    if value is not None and value not in choices:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(choices)}, not {value!r}.")
    return value


def env_secret_key(*, debug: bool) -> str:
    """SECRET_KEY; outside DEBUG a real one must be given."""
    key = env_str("SECRET_KEY")
    if debug:
        return key or DEMO_SECRET_KEY
    if not key:
        raise ImproperlyConfigured("SECRET_KEY is not set: with DEBUG off a real one must be given (DEBUG=1 to try things out).")
    if key == DEMO_SECRET_KEY or key.startswith("django-insecure-"):
        raise ImproperlyConfigured("SECRET_KEY is a public demo value: with DEBUG off a real one must be given.")
    return key


def env_email(name: str, default: str) -> dict[str, Any]:
    """Django's EMAIL_* settings from `smtp://user:pass@host:port` (or smtp+tls, smtp+ssl, consolemail)."""
    url = env_str(name, default)
    if "://" not in url or urlsplit(url).scheme not in _env.EMAIL_SCHEMES:
        raise ImproperlyConfigured(f"{name} must look like smtp://host:port, not {url!r}.")
    config = dict(_env.email_url_config(url))
    return {key: value for key, value in config.items() if key.startswith("EMAIL_") and key != "EMAIL_FILE_PATH"}


def _number(name: str, default: float, minimum: float, kind: type[int] | type[float]) -> float:
    raw = env_str(name)
    if not raw:
        return default
    try:
        value = kind(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a number, not {raw!r}.") from None
    if value < minimum:
        raise ImproperlyConfigured(f"{name} must be at least {minimum}, not {raw!r}.")
    return value
