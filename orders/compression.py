"""Compresses pages and static files with gzip, for browsers that ask for it.

Three kinds of answers stay as they are. Live streams: a compressor would hold events back. Small answers: they fit into one packet
anyway. The API's answers with an ETag: clients send it back (If-Match), and compression would weaken it.

A compressed page that shows a secret beside what its visitor typed tells the secret by its length. Our pages show two secrets:
CSRF tokens, which Django masks anew in each answer, and the address of the page itself. Django also adds bytes of a random number.
"""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

ONE_PACKET = 1_400
_STREAM = "text/event-stream"
_PACKED = (
    "image/",
    "video/",
    "audio/",
    "font/woff",
    "application/pdf",
    "application/zip",
    "application/gzip",
)  # no smaller when compressed


class Compression(GZipMiddleware):
    """Django's GZipMiddleware, without the answers that the module names. It stands before WhiteNoise, for static files too."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """The answer, compressed where that helps."""
        if stays(request, response):
            return response
        return super().process_response(request, response)  # type: ignore[arg-type]


def stays(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Whether the answer is sent as it is."""
    kind = response.headers.get("Content-Type", "")
    if kind.startswith(_STREAM) or (kind.startswith(_PACKED) and not kind.startswith("image/svg")):
        return True
    if request.path_info.startswith("/api/") and response.has_header("ETag"):
        return True
    return not response.streaming and len(response.content) < ONE_PACKET  # type: ignore[attr-defined]
