"""What is compressed on its way to a browser, and what must not be."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.templatetags.static import static
from django.test import Client, RequestFactory

from orders.compression import Compression

GZIP = {"Accept-Encoding": "gzip, deflate, br"}
LONG = "a page about mugs " * 200


def sent(answer: Any, path: str = "/", **headers: str) -> Any:
    """The answer after the middleware."""
    request = RequestFactory().get(path, headers={**GZIP, **headers})
    return Compression(lambda request: answer)(request)


def test_a_page_is_compressed_and_says_that_it_depends_on_the_browser(client, mug) -> None:
    answer = client.get("/", headers=GZIP)

    assert answer.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in answer.headers["Vary"]
    assert "Blue mug" in gzip.decompress(answer.content).decode()
    assert "Content-Encoding" not in client.get("/").headers


@pytest.mark.parametrize("path", ["orders/shop.css", "orders/vendor/htmx-2.0.11.min.js", "orders/products/mug-blue.svg"])
def test_static_files_are_compressed_where_that_helps(client, db, path) -> None:
    plain = client.get(static(path)).getvalue()
    answer = client.get(static(path), headers=GZIP)
    packed = answer.getvalue()

    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(packed) < 0.6 * len(plain)
    assert gzip.decompress(packed) == plain


def test_collected_files_are_compressed_before_and_kept_by_browsers_for_years(tmp_path, settings) -> None:
    settings.STATIC_ROOT = tmp_path
    settings.STATICFILES_DIRS = [settings.BASE_DIR / "orders" / "static"]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    settings.STORAGES = {**settings.STORAGES, "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"}}
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = False
    call_command("collectstatic", interactive=False, verbosity=0)
    path = static("orders/shop.css")

    answer = Client().get(path, headers=GZIP)

    assert re.fullmatch(r"/static/orders/shop\.[0-9a-f]{12}\.css", path)
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.getvalue() == (tmp_path / path.removeprefix("/static/")).with_suffix(".css.gz").read_bytes()  # made once


def test_a_live_stream_is_never_held_back_by_a_compressor() -> None:
    async def events() -> AsyncIterator[str]:
        yield "event: order\n\n"
        yield "event: done\n\n"

    answer = sent(StreamingHttpResponse(events(), content_type="text/event-stream"), "/orders/x/stream/")

    async def parts() -> list[bytes]:
        return [part async for part in answer]

    assert "Content-Encoding" not in answer.headers
    assert asyncio.run(parts()) == [b"event: order\n\n", b"event: done\n\n"]


def test_a_long_list_that_is_streamed_is_compressed() -> None:
    def rows() -> Iterator[str]:
        yield from ["one,two\n"] * 400

    answer = sent(StreamingHttpResponse(rows(), content_type="text/csv"))

    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(answer.getvalue()).decode() == "one,two\n" * 400


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(HttpResponse("short"), id="it fits into one packet"),
        pytest.param(HttpResponse(LONG, content_type="image/png"), id="a picture that is packed already"),
        pytest.param(FileResponse([LONG.encode()], content_type="application/pdf"), id="an invoice"),
        pytest.param(HttpResponse(LONG, headers={"Content-Encoding": "br"}), id="compressed before"),
    ],
)
def test_these_stay_as_they_are(answer) -> None:
    assert sent(answer).headers.get("Content-Encoding") != "gzip"


def test_the_api_keeps_its_tags_as_clients_send_them_back() -> None:
    tagged = sent(HttpResponse(LONG, headers={"ETag": '"7"'}, content_type="application/json"), "/api/v1/orders/x/")
    plain = sent(HttpResponse(LONG, content_type="application/json"), "/api/v1/orders/")

    assert tagged.headers["ETag"] == '"7"'
    assert "Content-Encoding" not in tagged.headers
    assert plain.headers["Content-Encoding"] == "gzip"


def test_two_answers_of_the_same_page_differ_in_length(client, mug) -> None:
    lengths = {len(client.get("/accounts/login/", headers=GZIP).content) for _ in range(12)}

    assert len(lengths) > 1  # the length tells nothing exact about what is in the page
