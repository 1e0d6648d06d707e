"""Every refusal in one form: `application/problem+json` (RFC 9457), with field-level `errors` if fields are wrong.

`type` and `code` name the problem; `reference.problems` is the catalogue of all codes. Internal details (tracebacks, SQL) are
never sent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse, JsonResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.utils.encoding import force_str
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import exceptions

from supervision.errors import AwaitsApproval, NotPermitted, ProofNeeded, Refused, UnknownRun
from supervision.postgres import fitness

log = logging.getLogger(__name__)

PROBLEM = "application/problem+json"
RETRY_AFTER_SECONDS = 5


class TooLarge(exceptions.APIException):
    """The body is larger than this view accepts."""

    status_code = 413
    default_detail = gettext_lazy("The request body is too large.")
    default_code = "too_large"


class LengthRequired(exceptions.APIException):
    """The request has a body but no Content-Length."""

    status_code = 411
    default_detail = gettext_lazy("Send a Content-Length with the request body.")
    default_code = "length_required"


class PreconditionFailed(exceptions.APIException):
    """The request was made for another state of the order (If-Match)."""

    status_code = 412
    default_detail = gettext_lazy("The order has changed since you read it.")
    default_code = "precondition_failed"


_PROVE_AGAIN = gettext_lazy("This moves money, and it was long ago that this session was proved. Sign out and in again.")
_BY_STATUS = {400: "unreadable_request", 403: "permission_denied", 404: "not_found", 500: "internal_error"}


def problem(
    status: int,
    detail: str = "",
    *,
    code: str | None = None,
    errors: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    **facts: Any,
) -> HttpResponse:
    """One problem document. `facts` are its extension members. Without a code it has the code of its status."""
    code = code or _BY_STATUS[status]
    body: dict[str, Any] = {"type": f"urn:problem:{code}", "title": HTTPStatus(status).phrase, "status": status}
    if detail:
        body["detail"] = detail
    body["code"] = code
    if errors is not None:
        body["errors"] = errors
    # ASCII escapes, because the text may repeat what the client sent, such as lone surrogates.
    text = json.dumps({**body, **facts}, default=force_str)
    answer = HttpResponse(text, status=status, content_type=PROBLEM, headers=dict(headers or {}))
    answer.problem_code = code  # type: ignore[attr-defined]  # for the request log
    return answer


def problem_of(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """The answer to an exception that a view raised: REST framework's exception handler. An application's may call it."""
    for kind, answer in _ANSWERS:
        if isinstance(error, kind):
            return answer(error)
    if hidden_tables(error):
        return unavailable()
    request = context.get("request")
    log.error("%s %s failed", request and request.method, request and request.path, exc_info=error)
    return problem(500, _("Something went wrong on our side. Nothing you sent needs to change; please try again."))


def _invalid(error: exceptions.ValidationError) -> HttpResponse:
    errors = error.detail if isinstance(error.detail, dict) else {"non_field_errors": error.detail}
    return problem(400, first_words(errors), code="invalid", errors=errors)


def _framework(error: exceptions.APIException) -> HttpResponse:
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = str(error.auth_header)  # type: ignore[attr-defined]
    wait = getattr(error, "wait", None)
    if wait is not None:
        headers["Retry-After"] = str(max(1, round(wait)))
    return problem(error.status_code, force_str(error.detail), code=error.default_code, headers=headers)


def _refused_verb(error: Refused) -> HttpResponse:
    return problem(409, str(error), code=error.code)


def _asked_for(error: AwaitsApproval) -> HttpResponse:
    return JsonResponse({"approval": error.approval, "state": "pending"}, status=202)


def hidden_tables(error: BaseException) -> str | None:
    """How the database hides its tables from this process, if that is the error. No request can help it; the log says what does."""
    if hidden := fitness.hides(error):
        log.error("%s -> %s", hidden, fitness.SEEN)
    return hidden


def _unavailable(error: Exception) -> HttpResponse:
    log.warning("the database did not answer: %s", error)
    return unavailable()


def unavailable() -> HttpResponse:
    """503: the same request may be taken in a moment."""
    words = _("This cannot be taken now; please try again in a moment.")
    return problem(503, words, code="unavailable", headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


def not_found(_error: Exception | None = None) -> HttpResponse:
    """404, the same for foreign and unknown ids."""
    return problem(404, _("There is nothing here, or it is not yours to see."))


_ANSWERS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Callable[[Any], HttpResponse]], ...] = (
    (exceptions.ValidationError, _invalid),
    ((Http404, exceptions.NotFound, UnknownRun), not_found),
    (AwaitsApproval, _asked_for),
    (ProofNeeded, lambda error: problem(403, str(_PROVE_AGAIN), code=ProofNeeded.code)),
    (NotPermitted, lambda error: problem(403, str(error), code=error.code)),
    (Refused, _refused_verb),
    (PermissionDenied, lambda error: problem(403, str(error) or _("You may not do this."))),
    (RequestDataTooBig, lambda error: problem(413, str(TooLarge.default_detail), code="too_large")),
    ((UnreadablePostError, MultiPartParserError, SuspiciousOperation), lambda error: problem(400, _("The request cannot be read."))),
    (exceptions.APIException, _framework),
    ((OperationalError, InterfaceError), _unavailable),
)


def first_words(errors: Any, path: str = "") -> str:
    """The first error message with its full path: `lines[2].sku: there is no ...`."""
    if isinstance(errors, Mapping):
        for name, part in errors.items():
            if words := first_words(part, _path(path, name)):
                return words
        return ""
    message = force_str(errors[0]) if isinstance(errors, list) and errors else force_str(errors or "")
    return f"{path}: {message}" if path and message else message


def _path(path: str, name: str | int) -> str:
    if isinstance(name, int):
        return f"{path}[{name}]"
    if name == "non_field_errors":
        return path
    return f"{path}.{name}" if path else name
