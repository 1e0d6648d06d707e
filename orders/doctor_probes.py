"""The doctor's checks of the services behind the agents and of the console's sign-in. They only read and change nothing."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
from django.conf import settings
from django.core.mail import get_connection

from supervision.operations.doctor import Finding, Level, first_line, register

PATIENCE = 5.0  # seconds
SIMULATORS = "start manage.py simulators"


def payment() -> Iterator[Finding]:
    """Ask for a payment that does not exist: 404 means that address and API key are right."""
    url = f"{settings.STRIPE_API_BASE}/v1/payment_intents/pi_doctor"
    advice = f"set STRIPE_API_BASE and STRIPE_API_KEY, or {SIMULATORS}"
    yield _ask("payment", url, settings.STRIPE_API_KEY, "STRIPE_API_KEY", advice)
    if not settings.STRIPE_WEBHOOK_SECRET:
        text = f"without a secret every webhook is refused; a payment that waits is looked at every {settings.PAYMENT_LOOK_AFTER:g} s"
        yield Finding("payment", Level.WARN, text, "set STRIPE_WEBHOOK_SECRET")


def carrier() -> Iterator[Finding]:
    """Ask for a shipment that does not exist."""
    url = f"{settings.CARRIER_URL}/v1/shipments/by-key/doctor"
    advice = f"set CARRIER_URL and CARRIER_API_KEY, or {SIMULATORS}"
    yield _ask("carrier", url, settings.CARRIER_API_KEY, "CARRIER_API_KEY", advice)
    if not settings.CARRIER_WEBHOOK_SECRET:
        text = f"without a secret every webhook is refused; a parcel is looked at after {settings.PARCEL_LOOK_AFTER:g} s"
        yield Finding("carrier", Level.WARN, text, "set CARRIER_WEBHOOK_SECRET")


def mail() -> Iterator[Finding]:
    """Open an SMTP session and close it again."""
    address = f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}"
    door = get_connection(fail_silently=False)
    try:
        door.open()
        door.close()
    except OSError as problem:  # smtplib's errors are OSErrors too
        advice = f"set EMAIL_URL=smtp://host:port, or {SIMULATORS}"
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
