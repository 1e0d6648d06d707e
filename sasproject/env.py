"""Reads the environment. Each helper returns a typed value, or stops the start with an error that names the variable.

The error messages are one line each, because an operator reads them in the log of a container that does not start.
"""

from __future__ import annotations

import logging
import math
import os
from decimal import Decimal
from pathlib import Path
from typing import overload

from django.core.exceptions import ImproperlyConfigured

MOST_BYTES = 1_000_000  # of a secret's or a certificate's file
MAKE_A_KEY = "python -c 'import secrets; print(secrets.token_urlsafe(50))'"
DEMO_SECRET_KEY = "demo-only-secret-key-that-DEBUG-alone-permits"  # noqa: S105 - public on purpose, refused outside DEBUG


def env_str(name: str, default: str = "") -> str:
    """The text of `name`; an empty variable counts as unset."""
    return os.environ.get(name, "").strip() or default


def env_secret(name: str, default: str = "") -> str:
    """A secret: the text of `name`, or the one line of the file that `name_FILE` names, without the spaces around it.

    An error names the variable and the file, and never says what stands in them.
    """
    return _secret_file(name) or env_str(name, default)


def env_secrets(name: str, shortest: int = 1) -> list[str]:
    """Several secrets, separated by commas; in the file of `name_FILE` by commas or lines. shortest: characters that each has at least."""
    text = _secret_file(name, lines=True) or env_str(name)
    found = [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]
    if any(len(part) < shortest for part in found):
        raise ImproperlyConfigured(f"{name} must have keys of {shortest} characters or more, such as the output of {MAKE_A_KEY}.")
    return found


def env_file(name: str) -> str | None:
    """The path of a file that this process can read, such as a certificate; None where the variable is not set."""
    path = env_str(name)
    if path:
        _read(name, path)
    return path or None


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


def env_ports(name: str, default: list[int]) -> list[int]:
    """Comma separated port numbers."""
    found = env_list(name, [])
    if not all(part.isdecimal() and 0 < int(part) < 65_536 for part in found):
        raise ImproperlyConfigured(f"{name} must be port numbers such as 443,8443, not {env_str(name)!r}.")
    return [int(part) for part in found] or default


def env_counts(name: str) -> dict[str, int]:
    """`payment=4,shipping=2` as a dictionary; every count at least 1."""
    return counts_of(env_str(name), name)


def counts_of(text: str, name: str, example: str = "payment=4,shipping=2") -> dict[str, int]:
    """The same of a text. name and example: what an error names and shows."""
    counts = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        key, equals, number = part.partition("=")
        if not equals or not key.strip() or not number.strip().isdigit() or int(number) < 1:
            raise ImproperlyConfigured(f"{name} must look like {example}, not {part!r}.")
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


def env_template(name: str, place: str) -> str:
    """An http(s) address that contains `place`, which a value replaces later; empty if it is not set."""
    value = env_str(name)
    if value and (place not in value or not value.startswith(("http://", "https://"))):
        raise ImproperlyConfigured(f"{name} must be an http(s) address that contains {place}, not {value!r}.")
    return value


def env_choice(name: str, default: str | None, choices: tuple[str, ...]) -> str | None:
    """One of `choices`, or the default."""
    value = env_str(name) or default
    if value is not None and value not in choices:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(choices)}, not {value!r}.")
    return value


def env_level(name: str, default: str) -> str:
    """The least important level of the log, in capital letters."""
    level = env_str(name, default).upper()
    if level not in logging.getLevelNamesMapping():
        raise ImproperlyConfigured(f"{name} must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL, not {level!r}.")
    return level


def env_secret_key(*, debug: bool) -> str:
    """SECRET_KEY; outside DEBUG a real one must be given."""
    key = env_secret("SECRET_KEY")
    if debug:
        return key or DEMO_SECRET_KEY
    if not key:
        text = f"such as the output of {MAKE_A_KEY} (DEBUG=1 to try things out)."
        raise ImproperlyConfigured(f"SECRET_KEY is not set: with DEBUG off a real one must be given, {text}")
    if key == DEMO_SECRET_KEY or key.startswith("django-insecure-"):
        raise ImproperlyConfigured("SECRET_KEY is a public demo value: with DEBUG off a real one must be given.")
    return key


def _secret_file(name: str, *, lines: bool = False) -> str:
    variable = f"{name}_FILE"
    path = env_str(variable)
    if not path:
        return ""
    if env_str(name):
        raise ImproperlyConfigured(f"{name} and {variable} are both set: set one of them.")
    try:
        text = _read(variable, path).decode().strip()
    except UnicodeDecodeError:
        raise ImproperlyConfigured(f"{variable} cannot be read: {path}: expected text in UTF-8.") from None
    if not text:
        raise ImproperlyConfigured(f"{variable} names an empty file: {path}.")
    if not lines and len(text.splitlines()) > 1:
        raise ImproperlyConfigured(f"{variable} names a file with more than one line: {path}.")
    return text


def _read(variable: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise ImproperlyConfigured(f"{variable} cannot be read: {path}: {getattr(problem, 'strerror', None) or problem}.") from None
    if len(content) > MOST_BYTES:
        raise ImproperlyConfigured(f"{variable} names a file of more than {MOST_BYTES} bytes: {path}.")
    return content


def _number(name: str, default: float, minimum: float, kind: type[int] | type[float]) -> float:
    raw = env_str(name)
    if not raw:
        return default
    try:
        value = kind(raw)
    except ValueError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        raise ImproperlyConfigured(f"{name} must be a number, not {raw!r}.")
    if value < minimum:
        raise ImproperlyConfigured(f"{name} must be at least {minimum}, not {raw!r}.")
    return value
