"""Sends unexpected errors to Sentry, if SENTRY_DSN is set: where and what they were, and nothing about people.

What leaves: the type of the error, its place in our code, the logger, role, trace, run, step and attempt. What does not: the order's
public id, with which its page can be seen; bodies, cookies, headers and query strings of requests; addresses, accounts, the values
of local variables, the words of the error and of log lines, which may quote a customer. The log has the words, found by the trace
or the time.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from supervision.telemetry import log_context

HIDDEN = "see the log"
KEPT = ("event_id", "timestamp", "platform", "level", "logger", "exception", "environment", "release", "sdk", "server_name", "tags")


def start(dsn: str, environment: str) -> None:
    """Send errors to this DSN from now on; nothing if it is empty. Raises ImproperlyConfigured if it cannot be used."""
    if not dsn:
        return
    if find_spec("sentry_sdk") is None:
        raise ImproperlyConfigured("SENTRY_DSN is set, but sentry-sdk is not installed: pip install sentry-sdk")
    sdk = import_module("sentry_sdk")
    try:
        sdk.init(
            dsn=dsn,
            environment=environment,
            send_default_pii=False,
            include_local_variables=False,
            max_request_body_size="never",
            max_breadcrumbs=0,
            traces_sample_rate=None,
            auto_session_tracking=False,
            shutdown_timeout=2,
            before_send=stripped,
        )
    except Exception as error:
        raise ImproperlyConfigured(f"SENTRY_DSN cannot be used: {error}") from error


def stripped(event: dict[str, Any], _hint: object) -> dict[str, Any]:
    """The event without anything that may be about a person."""
    kept = {name: event[name] for name in KEPT if name in event}
    for error in (kept.get("exception") or {}).get("values") or ():
        error["value"] = HIDDEN
        for frame in (error.get("stacktrace") or {}).get("frames") or ():
            frame.pop("vars", None)
    kept["tags"] = {name: str(value) for name, value in log_context.facts().items() if value and name != "order"}
    if "exception" not in kept:
        kept["message"] = HIDDEN
    return kept
