"""The API's reference: one light page that says everything that the schema says."""

from __future__ import annotations

import gzip
import re

from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from orders.api import reference
from tests.shopping import a_client

DOCUMENT = SchemaGenerator().get_schema(request=None, public=True)
MOST_BYTES = 500_000


def test_the_page_has_every_operation_and_every_shape_and_runs_no_script(db, settings):
    settings.API_THROTTLE = None
    answer = a_client().get("/api/docs/")
    page = answer.content.decode()

    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            assert f'id="{operation["operationId"]}"' in page
            assert path in page
    targets = set(re.findall(r'href="#([\w-]+)"', page))
    assert targets <= set(re.findall(r'id="([\w-]+)"', page))
    assert {"shape-Order", "shape-OrderRequest"} <= targets
    assert "<script" not in page
    assert not re.search(r"(src|href)=.?https?:", page)
    assert "unsafe" not in answer["Content-Security-Policy"]


def test_the_page_is_light_and_is_served_compressed(db, settings):
    settings.API_THROTTLE = None
    plain = a_client().get("/api/docs/")
    packed = a_client().get("/api/docs/", headers={"Accept-Encoding": "gzip"})

    assert packed["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == plain.content
    assert len(packed.content) < MOST_BYTES / 10
    assert len(plain.content) < MOST_BYTES


def test_the_page_is_in_one_language_also_for_an_italian_first_reader(db):
    reference._facts.cache_clear()

    italian = Client(headers={"Accept-Language": "it"}).get("/api/docs/").content.decode()

    assert "0 removes the line" in italian
    assert Client().get("/api/docs/").content.decode() == italian
