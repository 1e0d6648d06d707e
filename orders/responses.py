"""Answers that are no pages, and headers of pages that a secret address protects."""

from __future__ import annotations

from django.http import HttpResponse
from django.utils.cache import add_never_cache_headers


def plain(status: int, text: str) -> HttpResponse:
    """One line of text for a program; caches must not store it."""
    return HttpResponse(f"{text}\n", status=status, content_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"})


def private(response: HttpResponse) -> HttpResponse:
    """Mark a page that only its secret link protects: caches must not store it and search engines must not list it.

    The referrer policy same-origin hides the link from other sites. no-referrer would also remove the origin from the
    page's own forms, and so break their CSRF check.
    """
    add_never_cache_headers(response)
    response.headers["Cache-Control"] = "private, no-store"
    response.headers["X-Robots-Tag"] = "noindex, nofollow, noarchive"
    response.headers["Referrer-Policy"] = "same-origin"
    return response
