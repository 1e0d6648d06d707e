"""The doctor's checks of the services behind the agents and of the console's sign-in. They only read and change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import httpx2
from django.conf import settings
from django.core.mail import get_connection
from django.http.request import validate_host

from supervision.models import Channel
from supervision.operations.doctor import Finding, Level, first_line, register

PATIENCE = 5.0  # seconds
_OF_THIS_MACHINE = ("127.0.0.1", "::1", "0.0.0.0", "localhost")  # noqa: S104 - nothing is bound to it
USUAL = "http://127.0.0.1:8010"  # where `manage.py simulators` listens


def _or_simulators(advice: str) -> str:
    """With DEBUG, the simulators are another way. Their mail server is in the demo's packages alone."""
    if not settings.DEBUG:
        return advice
    lacking = "" if find_spec("aiosmtpd") else "pip install -r requirements-embedded.txt, and "
    return f"{advice}, or {lacking}start manage.py simulators"


def _demo() -> dict[str, Any]:
    """The addresses of the running demo's simulators, which takes other ports where the usual ones are in use."""
    try:
        found = json.loads((settings.STATE_DIR / "simulators.json").read_text()) if settings.DEBUG else {}
    except (OSError, ValueError):
        found = {}
    return found if isinstance(found, dict) else {}


def _place(address: str) -> str:
    return str(_demo().get("url", address)) if address == USUAL else address


def payment() -> Iterator[Finding]:
    """Ask for a payment that does not exist: 404 means that address and API key are right."""
    url = f"{_place(settings.STRIPE_API_BASE)}/v1/payment_intents/pi_doctor"
    advice = _or_simulators("set STRIPE_API_BASE and STRIPE_API_KEY")
    yield _ask("payment", url, settings.STRIPE_API_KEY, "STRIPE_API_KEY", advice)
    if not settings.STRIPE_WEBHOOK_SECRET:
        text = f"without a secret every webhook is refused; a payment that waits is looked at every {settings.PAYMENT_LOOK_AFTER:g} s"
        yield Finding("payment", Level.WARN, text, "set STRIPE_WEBHOOK_SECRET")


def carrier() -> Iterator[Finding]:
    """Ask for a shipment that does not exist."""
    url = f"{_place(settings.CARRIER_URL)}/v1/shipments/by-key/doctor"
    advice = _or_simulators("set CARRIER_URL and CARRIER_API_KEY")
    yield _ask("carrier", url, settings.CARRIER_API_KEY, "CARRIER_API_KEY", advice)
    if not settings.CARRIER_WEBHOOK_SECRET:
        text = f"without a secret every webhook is refused; a parcel is looked at after {settings.PARCEL_LOOK_AFTER:g} s"
        yield Finding("carrier", Level.WARN, text, "set CARRIER_WEBHOOK_SECRET")


def mail() -> Iterator[Finding]:
    """Open an SMTP session and close it again."""
    host, port = settings.EMAIL_HOST, settings.EMAIL_PORT
    if (host, port) == ("127.0.0.1", 8025):
        port = _demo().get("smtp_port", port)
    address = f"{host}:{port}"
    door = get_connection(fail_silently=False, host=host, port=port)
    try:
        door.open()
        door.close()
    except OSError as problem:  # smtplib's errors are OSErrors too
        advice = _or_simulators("set EMAIL_URL=smtp://host:port")
        yield Finding("mail", Level.FAIL, f"{address}: {first_line(problem)}", advice)
    else:
        yield Finding("mail", Level.OK, f"{address} answers")


def console() -> Iterator[Finding]:
    """Say whether the console asks for a second factor, and whether its provider of sign-ins answers."""
    mode = settings.CONSOLE_SECOND_FACTOR
    if mode == "required":
        yield Finding("second factor", Level.OK, "the console requires one")
    else:
        text = f"CONSOLE_SECOND_FACTOR is {mode}: a password alone {'opens' if mode == 'off' else 'may open'} the console"
        yield Finding("second factor", Level.OK if settings.DEBUG else Level.WARN, text, "" if settings.DEBUG else "set it to required")
    for app in settings.SOCIALACCOUNT_PROVIDERS.get("openid_connect", {}).get("APPS", []):
        address = f"{app['settings']['server_url']}/.well-known/openid-configuration"
        try:
            issuer = httpx2.get(address, timeout=PATIENCE).raise_for_status().json()["issuer"]
        except (httpx2.HTTPError, ValueError, KeyError, TypeError) as problem:
            yield Finding("sign-in", Level.FAIL, f"{address}: {first_line(problem)}", "set OIDC_ISSUER")
        else:
            yield Finding("sign-in", Level.OK, f"{issuer} answers")


def alerts() -> Iterator[Finding]:
    """Say whether operators are told of incidents."""
    receivers: Any = settings.SUPERVISION["OPERATOR_EMAILS"]
    channels = Channel.objects.filter(active=True).count()
    if receivers or channels:
        yield Finding("alerts", Level.OK, f"incidents are told to mail addresses: {len(receivers)}, channels: {channels}")
    else:
        text = "no operator is told of incidents: OPERATOR_EMAILS is empty, and no channel is active"
        yield Finding("alerts", Level.WARN, text, "set OPERATOR_EMAILS, or add a channel in the console")


def links() -> Iterator[Finding]:
    """Say whether the links in mails lead to this site, for customers elsewhere."""
    host = urlsplit(settings.PUBLIC_URL).hostname or ""
    if not validate_host(host, settings.ALLOWED_HOSTS):
        text = f"links in mails begin with {settings.PUBLIC_URL}, a host that this site refuses"
        yield Finding("links", Level.WARN, text, "set PUBLIC_URL, or name the host in ALLOWED_HOSTS")
    elif not settings.DEBUG and host in _OF_THIS_MACHINE:
        yield Finding(
            "links", Level.WARN, f"links in mails begin with {settings.PUBLIC_URL}: they lead to this machine alone", "set PUBLIC_URL"
        )
    else:
        yield Finding("links", Level.OK, f"links in mails begin with {settings.PUBLIC_URL}")


def _ask(about: str, url: str, key: str, key_name: str, advice: str) -> Finding:
    address = url.split("/v1/")[0]
    try:
        answer = httpx2.get(url, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE)
    except httpx2.HTTPError as problem:
        return Finding(about, Level.FAIL, f"{address}: {first_line(problem)}", advice)
    if answer.status_code in (401, 403):
        return Finding(about, Level.FAIL, f"{address} refuses our key ({answer.status_code})", f"set {key_name}")
    if answer.status_code >= 500:
        text = f"{address} answers {answer.status_code}; its steps are postponed until it recovers"
        return Finding(about, Level.WARN, text)
    return Finding(about, Level.OK, f"{address} answers")


register("payment", payment)
register("carrier", carrier)
register("mail", mail)
register("console", console)
register("alerts", alerts, needs_database=True)
register("links", links)
