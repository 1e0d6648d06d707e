"""Lines for the rules of security.yml: `ruleid` stands above a line that its rule must find, `ok` above one that it lets pass."""

import hmac
import urllib.request

import httpx2
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import mark_safe
from django.views.decorators.csrf import csrf_exempt
from orders.gateways import http as gateway
from rest_framework.permissions import AllowAny, IsAuthenticated


def texts(name: str) -> list[str]:
    # ruleid: text-marked-safe
    a = mark_safe(f"<b>{name}</b>")
    # ok: text-marked-safe
    b = mark_safe("<br>")
    # ok: text-marked-safe
    c = format_html("<b>{}</b>", name)
    return [a, b, c]


# ruleid: door-without-csrf
@csrf_exempt
def unguarded(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


# ok: door-without-csrf
def guarded(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Everyone:
    # ruleid: door-for-all
    permission_classes = [AllowAny]


class Nothing:
    # ruleid: door-for-all
    permission_classes = []


class Accounts:
    # ok: door-for-all
    permission_classes = [IsAuthenticated]


def onward(request: HttpRequest) -> HttpResponse:
    # ruleid: redirect-to-a-stranger
    return redirect(request.GET["next"])


def onward_here(request: HttpRequest) -> HttpResponse:
    target = request.GET["next"]
    if url_has_allowed_host_and_scheme(target, None):
        # ok: redirect-to-a-stranger
        return redirect(target)
    # ok: redirect-to-a-stranger
    return redirect("orders:catalogue")


def found(request: HttpRequest) -> None:
    with connection.cursor() as cursor:
        # ruleid: statement-with-a-value
        cursor.execute(f"SELECT id FROM orders_order WHERE email = '{request.GET['email']}'")
        # ok: statement-with-a-value
        cursor.execute("SELECT id FROM orders_order WHERE email = %s", [request.GET["email"]])


def proven(signature: str, expected: str) -> bool:
    # ruleid: secret-compared-in-the-open
    early = signature == expected
    # ok: secret-compared-in-the-open
    return early and hmac.compare_digest(signature, expected)


def fetched() -> None:
    # ok: call-without-a-door
    gateway.call("GET", "https://example.com")
    # ruleid: call-without-a-door
    httpx2.get("https://example.com")
    # ruleid: call-without-a-door
    urllib.request.urlopen("https://example.com")
