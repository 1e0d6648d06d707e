"""The tables of customers' accounts."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class VerifiedEmail(models.Model):
    """A mail address whose owner has shown, by a link in a mail, that the account is theirs. In lower case; one account has it.

    It counts only while the account still has this address.
    """

    account = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="verified_email", verbose_name=_("account")
    )
    address = models.CharField(_("e-mail"), max_length=254, unique=True)
    verified_at = models.DateTimeField(_("verified at"), db_default=Now())

    class Meta:
        app_label = "orders"
        verbose_name = _("verified e-mail")
        verbose_name_plural = _("verified e-mails")
        default_permissions = ()

    def __str__(self) -> str:
        return self.address


class SavedAddress(models.Model):
    """A delivery address in the address book of an account. One of them is the default."""

    account = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="addresses", verbose_name=_("account"), db_index=False
    )
    name = models.CharField(_("full name"), max_length=100)
    line1 = models.CharField(_("street and number"), max_length=200)
    line2 = models.CharField(_("flat, floor, company"), max_length=200, db_default="", default="", blank=True)
    postal_code = models.CharField(_("postal code"), max_length=20)
    city = models.CharField(_("city"), max_length=100)
    country_area = models.CharField(_("province or state"), max_length=100, db_default="", default="", blank=True)
    country = models.CharField(_("country"), max_length=2)
    is_default = models.BooleanField(_("default"), db_default=False, default=False)
    created_at = models.DateTimeField(_("created at"), db_default=Now())

    class Meta:
        app_label = "orders"
        verbose_name = _("saved address")
        verbose_name_plural = _("saved addresses")
        default_permissions = ()
        indexes = [models.Index(name="address_of_account", fields=["account", "id"])]
        constraints = [models.UniqueConstraint(name="an_account_has_one_default_address", fields=["account"], condition=Q(is_default=True))]

    def __str__(self) -> str:
        return ", ".join(
            filter(None, [self.name, self.line1, self.line2, f"{self.postal_code} {self.city}", self.country_area, self.country])
        )
