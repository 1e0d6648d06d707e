"""The catalogue: categories, search, sorting, pages, and what it costs with 10,000 products."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from io import StringIO
from itertools import chain
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orders.catalogue import ARTICLES
from orders.models import Category, Product
from tests.shopping import a_client, a_product
from tests.support import pages

PRODUCTS = "/api/v1/products/"


def names(page: str) -> list[str]:
    """The products on a page, in order."""
    return re.findall(r'<h2><a href="/products/[^"]*">([^<]*)</a></h2>', page)


def further(page: str, rel: str = "next") -> str | None:
    """The address of the page after this one."""
    found = re.search(rf'rel="{rel}" href="([^"]*)"', page)
    return found.group(1).replace("&amp;", "&") if found else None


def walk(client: Any, start: str, rel: str = "next") -> list[list[str]]:
    """The products of every page from this one on."""
    path, address, found = start.partition("?")[0], start, []
    while address:
        page = client.get(address).text
        found.append(names(page))
        link = further(page, rel)
        address = path + link if link else ""
    return found


@pytest.fixture
def shelves(db) -> dict[str, Category]:
    return {slug: Category.objects.create(slug=slug, name=slug.title(), position=place) for place, slug in enumerate(["kitchen", "desk"])}


def test_every_product_is_on_one_page_and_the_pages_go_both_ways(client, db) -> None:
    for number in range(60):
        a_product(f"P-{number}", name=f"Thing {number % 7}")  # several products of one name

    there = walk(client, "/")
    last = "/?" + (further(client.get("/" + str(further(client.get("/").text))).text) or "").lstrip("?")
    back = walk(client, last, "prev")

    assert [len(page) for page in there] == [24, 24, 12]
    assert sorted(chain.from_iterable(there)) == sorted(Product.objects.values_list("name", flat=True))
    assert there == back[::-1]


@pytest.mark.parametrize(
    ("sort", "expected"), [("price", ["Cup", "Bowl", "Jar"]), ("-price", ["Jar", "Bowl", "Cup"]), ("", ["Bowl", "Cup", "Jar"])]
)
def test_products_are_sorted_by_name_or_by_price(client, db, sort, expected) -> None:
    for sku, price in {"Cup": "2.00", "Bowl": "10.00", "Jar": "10.50"}.items():
        a_product(sku, name=sku, price=price)

    assert names(client.get("/", {"sort": sort}).text) == expected


@pytest.mark.parametrize("sort", ["price", "-price", ""])
def test_products_that_come_and_go_shift_no_page(client, db, sort) -> None:
    for number in range(30):
        a_product(f"P-{number:02}", name=f"Thing {number:02}", price=number)
    first = client.get("/", {"sort": sort}).text
    Product.objects.filter(name__in=names(first)[:5]).update(active=False)
    a_product("NEW", name="A new thing", price="100" if sort == "-price" else "0")

    second = client.get("/" + str(further(first))).text

    assert len(names(first) + names(second)) == 30
    assert not set(names(first)) & set(names(second))


@pytest.mark.parametrize(
    "link",
    [
        "after=x",
        "after=WyJhIl0",
        "before=%00",
        "after=" + "A" * 3000,
        "after=WyJhIiwgIngiXQ",
        "after=WyJcdWQ4MDAiLCIxIl0",
        "sort=none",
        "after=",
    ],
)
def test_a_link_that_makes_no_sense_leads_to_the_first_page(client, mug, link) -> None:
    assert names(client.get(f"/?{link}").text) == ["Blue mug"]


def test_a_category_shows_its_products_alone(client, mug, shelves) -> None:
    Product.objects.update(category=shelves["kitchen"])
    a_product("PEN", name="A pen", category=shelves["desk"])
    a_product("LOOSE", name="Loose")

    assert names(client.get("/categories/desk/").text) == ["A pen"]
    assert names(client.get("/").text) == ["A pen", "Blue mug", "Loose"]
    assert 'href="/categories/kitchen/" aria-current="page"' in client.get("/categories/kitchen/").text
    assert client.get("/categories/none/").status_code == 404
    assert "/categories/desk/" in client.get("/products/PEN/").text


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("mug", ["Blue mug", "Saucer"]),  # in the name first, then in the description
        ("MUGS", ["Blue mug", "Saucer"]),
        ("blu", ["Blue mug", "Blue pen"]),
        ("mug blue", ["Blue mug"]),
        ("PEN-01", ["Blue pen"]),
        ("caffè", ["Tazza da caffè"]),
        ("caffe", ["Tazza da caffè"]),
        ("cafés", ["Tazza da caffè"]),
        ("mùg", ["Blue mug", "Saucer"]),
        ("nothing", []),
        ("--", []),
        ("' | ! & <-> :*", []),
        ("the", []),
        ("x" * 500, []),
        ("\x00mug", ["Blue mug", "Saucer"]),
    ],
)
def test_a_search_finds_the_beginnings_of_words(client, mug, said, found) -> None:
    a_product("PEN-01", name="Blue pen")
    a_product("SAUCER", name="Saucer", description="For every mug.")
    a_product("TAZZA", name="Tazza da caffè", description="Per i CAFÉS piccoli.")
    a_product("OLD-MUG", name="Old mug", active=False)

    page = client.get("/", {"q": said}).text

    assert names(page) == found
    assert ("Nothing found" in page) == (not found)


def test_a_search_stays_in_its_category_and_is_repeated_by_the_links(client, mug, shelves) -> None:
    for number in range(30):
        a_product(f"P-{number}", name=f"Mug <{number:02}>", category=shelves["kitchen"])

    page = client.get("/categories/kitchen/", {"q": "mug", "sort": "price"}).text

    assert "Blue mug" not in page
    assert sum(map(len, walk(client, "/categories/kitchen/?q=mug&sort=price"))) == 30
    assert "q=mug" in str(further(page))
    assert 'value="mug"' in page


def test_the_best_matches_come_first_over_all_pages(client, db) -> None:
    for number in range(30):
        a_product(f"M-{number}", name=f"Mug {number % 4}")
        a_product(f"S-{number}", name=f"A saucer {number % 4}", description="for every mug")

    found = list(chain.from_iterable(walk(client, "/?q=mug")))

    assert found == sorted(found, key=lambda name: (name.startswith("A"), name))
    assert len(found) == 60


def test_what_is_searched_for_is_escaped(client, mug) -> None:
    page = client.get("/", {"q": '"><script>x'}).text

    assert "<script>x" not in page
    assert "&quot;&gt;&lt;script&gt;x" in page


def test_the_api_searches_and_narrows_to_a_category(mug, shelves) -> None:
    a_product("PEN", name="Blue pen", category=shelves["desk"])
    api = a_client()

    def found(**query: str) -> list[str]:
        return [row["sku"] for row in api.get(PRODUCTS, query).json()["results"]]

    assert found(search="blue") == ["MUG-BLUE", "PEN"]
    assert found(search="blue", category="desk") == ["PEN"]
    assert found(search="") == []
    assert api.get(PRODUCTS, {"category": "desk"}).json()["results"][0]["category"] == "desk"
    assert api.get(PRODUCTS, {"category": "none"}).json()["errors"] == {"category": ["There is no such category."]}
    assert api.get(PRODUCTS, {"search": "x" * 101}).json()["errors"] == {"search": ["Expected at most 100 characters."]}


def test_an_operator_keeps_the_categories_and_a_viewer_only_looks(mug, shelves, operator, viewer) -> None:
    address = f"/admin/orders/category/{shelves['desk'].pk}/change/"
    Product.objects.update(category=shelves["kitchen"])

    operator.post(address, {"name": "Writing", "slug": "desk", "position": "3"})
    refused = viewer.post(address, {"name": "Mine", "slug": "desk", "position": "3"})
    kept = operator.post(f"/admin/orders/category/{shelves['kitchen'].pk}/delete/", {"post": "yes"})

    assert refused.status_code == 403
    assert "Writing" in viewer.get("/admin/orders/category/").text
    assert Category.objects.get(slug="desk").name == "Writing"
    assert Category.objects.filter(slug="kitchen").exists(), kept


def seeded(count: int) -> None:
    call_command("seed_catalogue", count=count, stdout=StringIO())
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE orders_product")


def touched(client: Any, address: str) -> tuple[int, int]:
    """How many database pages a page of the shop touches, and its length."""
    with CaptureQueriesContext(connection) as seen:
        answer = client.get(address)
    assert answer.status_code == 200
    reads = [one["sql"] for one in seen.captured_queries if one["sql"].startswith("SELECT") and "orders_product" in one["sql"]]
    assert reads
    return sum(pages.of(sql, None) for sql in reads), len(answer.content)


def test_a_catalogue_of_10_000_products_costs_what_one_of_1_000_does(client, db) -> None:
    middle = urlsafe_b64encode(json.dumps(["Olive", "1"]).encode()).decode().rstrip("=")
    addresses = ["/", f"/?after={middle}", "/?sort=price", "/categories/light/", "/?q=oak"]
    seeded(1_000)
    few = {address: touched(client, address) for address in addresses}
    seeded(10_000)
    many = {address: touched(client, address) for address in addresses}

    # 24 products may lie on 24 pages; an index has one more level.
    assert {address: (few[address][0], many[address][0]) for address in addresses if many[address][0] > few[address][0] + 30} == {}
    assert {address: (few[address][1], many[address][1]) for address in addresses if many[address][1] > 1.1 * few[address][1]} == {}


def test_the_seeder_makes_as_many_products_as_asked_for_and_no_more_when_repeated(db) -> None:
    seeded(100)
    seeded(100)

    assert Product.objects.count() == 100
    assert set(Product.objects.filter(sku__in=[article.sku for article in ARTICLES]).values_list("category__slug", flat=True)) == {
        "kitchen", "desk", "living", "light", "on-the-way"
    }  # fmt: skip
    with pytest.raises(CommandError, match="--count: expected a number from 12 to"):
        call_command("seed_catalogue", count=11)


def test_products_from_before_there_were_categories_go_to_their_shelves(db, shelves) -> None:
    a_product("MUG-BLUE")
    a_product("PENCILS-12", category=shelves["kitchen"])  # put there by an operator

    seeded(12)

    assert dict(Product.objects.filter(sku__in=["MUG-BLUE", "PENCILS-12"]).values_list("sku", "category__slug")) == {
        "MUG-BLUE": "kitchen", "PENCILS-12": "kitchen"
    }  # fmt: skip
