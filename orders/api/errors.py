"""The shop's refusals as problem documents, and Django's handlers of 400, 403, 404 and 500 for pages and API."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _
from django.views import defaults

from orders.services import Conflict, InvalidOrder, KeyReused, NotAllowed
from supervision.api import errors
from supervision.api.errors import first_words, problem


def problem_of(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """REST framework's exception handler: the shop's refusals, and the engine's for the rest."""
    if isinstance(error, InvalidOrder | Conflict | KeyReused):
        status, members = refusal(error)
        return problem(status, **members)
    return errors.problem_of(error, context)


def refusal(error: InvalidOrder | Conflict | KeyReused) -> tuple[int, dict[str, Any]]:
    """The status of a refused order request, and the members of its problem document."""
    if isinstance(error, NotAllowed):
        return 403, {"detail": str(error), "code": "not_allowed", "errors": error.errors}
    if isinstance(error, InvalidOrder):
        return 400, {"detail": first_words(error.errors) or str(error), "code": "invalid", "errors": error.errors}
    if isinstance(error, Conflict):
        return 409, {"detail": error.message, "code": error.code, "errors": error.errors, **error.facts}
    return 422, {"detail": str(error), "code": "key_reused", "errors": {"idempotency_key": [str(error)]}}


def _speaks_problems(request: HttpRequest) -> bool:
    return request.path_info.startswith("/api/")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """`handler400`: a problem document for the API, an HTML page otherwise."""
    if _speaks_problems(request):
        return problem(400, _("The request cannot be read."))
    return defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """`handler403`."""
    if _speaks_problems(request):
        return problem(403, _("You may not do this."))
    return defaults.permission_denied(request, exception)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """`handler404`."""
    if _speaks_problems(request):
        return errors.not_found()
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """`handler500`; 503 where the database did not answer, or hides its tables from us."""
    error = sys.exc_info()[1]
    if isinstance(error, OperationalError | InterfaceError) or (error is not None and errors.hidden_tables(error)):
        answer = errors.unavailable() if _speaks_problems(request) else defaults.server_error(request)
        answer.status_code = 503
        answer.headers["Retry-After"] = str(errors.RETRY_AFTER_SECONDS)
        return answer
    if _speaks_problems(request):
        return problem(500, _("Something went wrong on our side. Nothing you sent needs to change; please try again."))
    return defaults.server_error(request)
