"""The table of categories."""

from __future__ import annotations

from django.contrib.postgres.search import SearchVector
from django.db import models
from django.db.models import Value
from django.db.models.functions import Replace
from django.utils.translation import gettext_lazy as _

from orders.accents import without_accents

LANGUAGE = "english"  # of the products' texts
# What a search looks at. "PEN-01" is two words: PostgreSQL would read the second one as a negative number.
WORDS = SearchVector(without_accents("name"), Replace("sku", Value("-"), Value(" ")), without_accents("description"), config=LANGUAGE)
WORDS_AS_WRITTEN = SearchVector("name", Replace("sku", Value("-"), Value(" ")), "description", config=LANGUAGE)


class Category(models.Model):
    """A shelf of the shop. A product stands on one or on none. Its name is shown as it is written here, in every language."""

    slug = models.SlugField(_("address"), max_length=64, unique=True)
    name = models.CharField(_("name"), max_length=100)
    position = models.SmallIntegerField(_("position"), db_default=0, default=0, help_text=_("Lower ones come first."))

    class Meta:
        app_label = "orders"
        verbose_name = _("category")
        verbose_name_plural = _("categories")
        ordering = ["position", "name"]
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
