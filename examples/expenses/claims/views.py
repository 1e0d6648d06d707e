"""A claim comes in, is looked at, and is decided."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation

from django.contrib.admin.views.decorators import staff_member_required
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

import supervision
from supervision.errors import Refused, UnknownRun
from supervision.signals.sending import send_signal


def _claim_in(body):
    """The claim in this text; None if it is none."""
    try:
        claim = json.loads(body)
        amounts = [Decimal(item["amount"]) for item in claim["items"]]
        return claim if isinstance(claim["employee"], str) and amounts else None
    except (ValueError, KeyError, TypeError, InvalidOperation):
        return None


@csrf_exempt
@require_POST
def submit(request: HttpRequest) -> JsonResponse:
    """Accept a claim: {"employee": "Ada", "items": [{"what": "train", "amount": "80.00"}]}. It is safe once this answers 202."""
    claim = _claim_in(request.body)
    if claim is None:
        return JsonResponse({"error": "expected an employee, and items with an amount each"}, status=400)
    return JsonResponse({"id": supervision.submit("expense-claim", claim)}, status=202)


def show(request: HttpRequest, key: str) -> JsonResponse:
    """The claim's state, and its results once it has come to rest."""
    try:
        found = supervision.result(key, timeout=0)
    except UnknownRun:
        return JsonResponse({"error": "there is no such claim"}, status=404)
    except TimeoutError:
        return JsonResponse({"state": supervision.state(key), "results": None})
    return JsonResponse({"state": found.state, "results": found.results})


@csrf_exempt
@require_POST
@staff_member_required
def decide(request: HttpRequest, key: str) -> JsonResponse:
    """The manager's decision: approved=yes or no. The same decision sent twice has one effect."""
    decision = {"approved": request.POST.get("approved") == "yes", "by": request.user.get_username()}
    try:
        send_signal(key, "approval", decision, key=f"decision of {decision['by']}", sent_by=decision["by"])
    except UnknownRun:
        return JsonResponse({"error": "there is no such claim"}, status=404)
    except Refused as refusal:
        return JsonResponse({"error": str(refusal)}, status=409)
    return JsonResponse(decision, status=202)
