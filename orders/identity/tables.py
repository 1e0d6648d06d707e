"""What is recorded of an API token beside its hash."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

NAME_LENGTH = 60
READ, ORDERS, OPERATE = "read", "orders", "operate"
SCOPES = {
    READ: _("read only"),
    ORDERS: _("read, place orders and change own ones"),
    OPERATE: _("all that the account may do"),
}


class TokenGrant(models.Model):
    """The name of an API token, and how much of its account's rights it carries. A token without a row carries all of them."""

    token = models.OneToOneField(
        "knox.AuthToken", on_delete=models.CASCADE, primary_key=True, related_name="grant", verbose_name=_("token")
    )
    name = models.CharField(_("name"), max_length=NAME_LENGTH)
    scope = models.CharField(_("scope"), max_length=10, choices=list(SCOPES.items()))

    class Meta:
        app_label = "orders"
        verbose_name = _("token's scope")
        verbose_name_plural = _("tokens' scopes")
        default_permissions = ()
        constraints = [models.CheckConstraint(name="token_scope_known", condition=Q(scope__in=[READ, ORDERS, OPERATE]))]

    def __str__(self) -> str:
        return self.name
