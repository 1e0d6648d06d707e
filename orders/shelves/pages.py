"""The pages of the catalogue: all products, one category, and what a search finds."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from orders.models import Category
from orders.shelves.search import LONGEST, SORTS, shelf

SORT_WORDS = {"": _("Best match first"), "name": _("By name"), "price": _("Cheapest first"), "-price": _("Most expensive first")}


@require_safe
def catalogue(request: HttpRequest, slug: str = "") -> HttpResponse:
    """Products on sale. q: words to search for; sort: one of SORT_WORDS."""
    category = get_object_or_404(Category, slug=slug) if slug else None
    said = " ".join("".join(one if one.isprintable() else " " for one in request.GET.get("q", "")).split())[:LONGEST]
    sort = request.GET.get("sort", "")
    sort = sort if sort in SORTS else ("" if said else "name")
    facts = {
        "page": shelf(request.GET, category=category, said=said, sort=sort),
        "categories": Category.objects.all(),
        "category": category,
        "said": said,
        "sort": sort,
        "sorts": [(value, words) for value, words in SORT_WORDS.items() if value or said],
        "moved": "after" in request.GET or "before" in request.GET,
    }
    return render(request, "orders/catalogue.html", facts)
