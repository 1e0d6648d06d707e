"""The sign-in's middleware: ends operators' sessions, sets the status of refused sign-ins, and gives known browsers their cookie."""

from __future__ import annotations

import math
from typing import Any

from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin
from django.utils.functional import SimpleLazyObject

from orders.identity import attempts, devices, security_log, sessions
from orders.identity.forms import refusal
from orders.identity.hashing import HashingBusy

BUSY_SECONDS = 3


class Identity(MiddlewareMixin):
    """Comes after the session, the account and the messages."""

    def process_request(self, request: Any) -> None:
        """Once the account is asked for: end an operator's session that is over, and count the passwords that the account is asked about.

        A request that does not ask for the account costs no query.
        """
        found = request.user
        request.user = SimpleLazyObject(lambda: attempts.watched(request, sessions.current(request, found)))

    def process_response(self, request: Any, response: HttpResponseBase) -> HttpResponseBase:
        """429 with Retry-After for a try that was refused; the cookie of a browser that signed in; a line for what was denied."""
        refused = getattr(request, "sign_in_try", None)
        if refused is not None and refused.wait:
            response.status_code = 429
            response.headers["Retry-After"] = str(math.ceil(refused.wait))
        if account := getattr(request, "confirmed", None):
            devices.remember(request, account)  # a new password has ended the browser's cookie
        devices.write(request, response)
        security_log.denied(request, response)
        return response

    def process_exception(self, request: Any, exception: Exception) -> HttpResponse | None:
        """Say when to try again, after too many wrong passwords, or when too many people sign in at once.

        The passwords of the latter were not looked at, so the try does not count.
        """
        if isinstance(exception, attempts.TooManyTries):
            return render(
                request, "orders/account/too_many.html", {"refusal": refusal(exception.wait)}
            )  # `process_response` makes it a 429
        if not isinstance(exception, HashingBusy):
            return None
        attempts.not_looked_at(request)
        response = render(request, "orders/account/busy.html", status=503)
        response.headers["Retry-After"] = str(BUSY_SECONDS)
        return response
