"""The channels that tell operators of incidents, beside mails to OPERATOR_EMAILS: edited, tested and logged here."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import HttpRequest
from django.urls import URLPattern
from django.utils.html import format_html_join
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminTextInputWidget

from supervision.console.bounded_lists import Labelled, LockedAdmin, ReadOnlyAdmin
from supervision.console.lists.row_buttons import button_of, row_button
from supervision.console.shared import may_operate
from supervision.models import Channel, Telling
from supervision.outbox import address_policy, channels
from supervision.outbox.channel_texts import receivers
from supervision.runtime.humanize import at_of, moment
from supervision.sealing.texts import Unopened, Unreadable, usable

LOG_SHOWN = 20
DESTINATION = frozenset({"kind", "address", "secret"})  # what is checked together, and saved together


class ChannelForm(forms.ModelForm):  # type: ignore[type-arg]
    """A channel. Its secret is never sent to the browser: an empty field keeps it.

    PagerDuty's key travels in each message. So it is not kept for another address, whose owner could read it. Nor is a key sent to
    an address that another operator has entered since this form was opened.
    """

    secret = forms.CharField(
        label=_("Secret"), required=False, max_length=2000, strip=True, widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "off"}),
        help_text=_(
            "Slack: the whole address of the incoming webhook. PagerDuty: the integration key of Events API v2. Webhook: the signing "
            "secret (whsec_...); without one it is made, and shown once. Leave it empty to keep the present one."
        ),
    )  # fmt: skip
    kinds = forms.CharField(
        label=_("Kinds of incidents"), required=False, max_length=500, widget=UnfoldAdminTextInputWidget(), show_hidden_initial=True,
        help_text=_("Separated by commas, such as outage, dead_letters. Empty: all kinds."),
    )  # fmt: skip

    class Meta:
        model = Channel
        fields = ("name", "kind", "address", "secret", "least", "kinds", "active")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["secret"] = ""
        if isinstance(self.instance.address, Unopened):
            self.initial["address"] = ""
        self.initial["kinds"] = ", ".join(self.instance.kinds or [])
        self.made = ""
        for name in ("name", "address"):
            if name in self.fields:
                self.fields[name].widget = UnfoldAdminTextInputWidget()
        if "address" in self.fields:
            self.fields["address"].help_text = _(
                "Mail: the receivers, separated by commas. Webhook: the address. Slack: empty. PagerDuty: empty, or the address of its API."
            )

    def clean_name(self) -> str:
        """The name, which stands in the subject of mails: one line."""
        name = str(self.cleaned_data["name"])
        if not name.isprintable():
            raise ValidationError(_("Control characters are not allowed."))
        return name

    def clean_kinds(self) -> list[str]:
        """The words of the list."""
        return receivers(self.cleaned_data["kinds"])

    def clean(self) -> dict[str, Any]:
        """What each kind of channel needs."""
        said: dict[str, Any] = super().clean() or self.cleaned_data
        if self.instance.pk is not None and not DESTINATION & set(self.changed_data):
            return said | {name: getattr(self.instance, name) for name in DESTINATION}
        if self.instance.pk is not None and any(self._is_another(name) for name in ("kind", "address")):
            raise ValidationError(_("Another operator has changed where this channel sends to. Load the page again."))
        kind, address = said.get("kind"), (said.get("address") or "").strip()
        said["secret"] = said.get("secret") or ("" if self.instance.kind != kind else self.instance.secret)
        try:
            self._complete(said, kind, address)
        except ValidationError as problem:
            for field, words in problem.message_dict.items():
                self.add_error(field, words)
        return said

    def _is_another(self, name: str) -> bool:
        """Whether the row has another value than the page showed."""
        kept = "" if isinstance(value := getattr(self.instance, name), Unopened) else value
        return str(self.data.get(self.add_initial_prefix(name), kept)).split() != kept.split()

    def _complete(self, said: dict[str, Any], kind: str | None, address: str) -> None:
        if kind == Channel.Kind.MAIL:
            _mail_addresses(address)
            said["secret"] = ""
        elif kind == Channel.Kind.WEBHOOK:
            _checked("address", address)
            if not said["secret"]:
                said["secret"] = self.made = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
            _signing(said["secret"])
        elif kind == Channel.Kind.SLACK:
            _checked("secret", said["secret"])
            said["address"] = ""
        elif kind == Channel.Kind.PAGERDUTY:
            if not said["secret"]:
                raise ValidationError({"secret": _("Expected the integration key.")})
            if address != self.instance.address and "secret" not in self.changed_data:
                raise ValidationError({"secret": _("The address changed: give the integration key again.")})
            if address:
                _checked("address", address)


def _mail_addresses(address: str) -> None:
    if not receivers(address):
        raise ValidationError({"address": _("Expected at least one mail address.")})
    for receiver in receivers(address):
        try:
            validate_email(receiver)
            receiver.rpartition("@")[2].encode("idna")  # as it is sent: a label may become too long
        except (ValidationError, UnicodeError):
            raise ValidationError({"address": _("%(what)s is no mail address.") % {"what": receiver}}) from None


def _checked(field: str, address: str) -> None:
    try:
        address_policy.check(address)
    except address_policy.Forbidden as refusal:
        raise ValidationError({field: str(refusal)}) from None


def _signing(secret: str) -> None:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if not key:
        raise ValidationError({"secret": _("Expected whsec_ and base64.")})


@admin.register(Channel)
class ChannelAdmin(LockedAdmin):
    """The channels, and the state of each."""

    form = ChannelForm
    empty_means = _("No channel: operators learn of incidents by the mails to OPERATOR_EMAILS alone.")
    list_display = ["name", "kind", "least", "state", "sent_at"]
    fields = ["name", "kind", "address", "secret", "least", "kinds", "active", "masked", "state", "last_error", "test_button", "sent"]
    readonly_fields = ["where", "masked", "state", "last_error", "test_button", "sent"]
    ordering = ["name"]
    sortable_by = ()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Channel | None = None) -> bool:
        return request.user.has_perm("supervision.view_run")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may_operate(request)

    def has_change_permission(self, request: HttpRequest, obj: Channel | None = None) -> bool:
        return may_operate(request)

    def has_delete_permission(self, request: HttpRequest, obj: Channel | None = None) -> bool:
        return may_operate(request)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """A channel goes with the log of its messages, which no operator may delete alone. They are counted, not listed."""
        chosen = list(objs)
        counts = {
            Channel._meta.verbose_name_plural: len(chosen),
            Telling._meta.verbose_name_plural: Telling.objects.filter(channel__in=chosen).count(),
        }
        return [str(channel) for channel in chosen], counts, set(), []

    def get_fields(self, request: HttpRequest, obj: Channel | None = None) -> Any:
        if obj is None:
            return list(ChannelForm.Meta.fields)
        if may_operate(request):
            return self.fields
        return ["where" if name == "address" else name for name in self.fields if name not in ("secret", "test_button")]

    def save_model(self, request: HttpRequest, obj: Channel, form: Any, change: bool) -> None:
        """Save, and try at once again what failed: the operator may have mended it."""
        obj.retry_at = None
        super().save_model(request, obj, form, change)
        if getattr(form, "made", ""):
            words = _("Its signing secret, shown only now: %(secret)s")
            messages.warning(request, words % {"secret": form.made})

    def changed(self, form: Any) -> list[str]:
        """The fields that were changed; where a message goes is one field."""
        names = set(form.changed_data)
        return [*(names | DESTINATION if names & DESTINATION else names), "retry_at"]

    @display(description=_("address"))
    def where(self, obj: Channel) -> str:
        try:
            return usable(obj.address) or "–"
        except Unreadable as problem:
            return str(problem)

    @display(description=_("Secret kept"))
    def masked(self, obj: Channel) -> str:
        try:
            usable(obj.secret)
        except Unreadable as problem:
            return str(problem)
        return f"••••{obj.secret[-4:]}" if len(obj.secret) >= 12 else "–" if not obj.secret else "••••"

    @display(description=_("State"), label={"works": "success", "new": "info", "failing": "danger", "off": "warning"})
    def state(self, obj: Channel) -> Labelled:
        if not obj.active:
            return Labelled(("off", _("switched off")))
        if isinstance(obj.secret, Unopened) or isinstance(obj.address, Unopened):
            return Labelled(("failing", _("its secret cannot be decrypted")))
        if obj.failing_since:
            return Labelled(("failing", _("failing since %(since)s") % {"since": moment(obj.failing_since)}))
        return Labelled(("works", _("works")) if obj.sent_at else ("new", _("nothing sent yet")))

    @display(description=_("Test"))
    def test_button(self, obj: Channel) -> str:
        return button_of("test", obj, _("Send a test"))

    @display(description=_("Sent"))
    def sent(self, obj: Channel) -> str:
        rows = obj.tellings.order_by("-pk")[:LOG_SHOWN]
        lines = ((moment(row.created_at), str(row), _outcome(row)) for row in rows)
        return format_html_join("", "<div>{}: {}, {}</div>", lines) or "–"

    def get_urls(self) -> list[URLPattern]:
        return [row_button(self, "test", self.send_test, allowed=may_operate), *super().get_urls()]

    def send_test(self, request: HttpRequest, channel: Channel) -> None:
        """Send a test, and tell its result."""
        if not channel.active:
            messages.warning(request, _("The channel is switched off: nothing was sent."))
            return
        row = channels.send_test(channel)
        level = messages.SUCCESS if row.delivered_at else messages.ERROR
        messages.add_message(request, level, _("Test: %(outcome)s") % {"outcome": _outcome(row)})


@admin.register(Telling)
class TellingAdmin(ReadOnlyAdmin):
    """The log of alerts sent out."""

    empty_means = _("No alert was sent to a channel.")
    seen_with = "supervision.view_run"
    list_display = ["event", "incident_id", "channel", "outcome", "attempt", "age"]
    list_filter = ["channel"]
    list_select_related = ["channel"]
    fields = ["channel", "event", "incident_id", "severity", "outcome", "created_at", "delivered_at", "given_up_at", "history"]
    readonly_fields = fields
    ordering = ["-pk"]
    aged_from = "created_at"

    @display(description=_("Outcome"))
    def outcome(self, obj: Telling) -> str:
        return _outcome(obj)

    @display(description=_("Tries"))
    def history(self, obj: Telling) -> str:
        lines = ((at_of(each), each["status"] or "–", each["error"] or _("delivered"), each["seconds"]) for each in obj.log)
        return format_html_join("", "<div>{}: {} {} ({} s)</div>", lines) or "–"


def _outcome(row: Telling) -> str:
    answer = f" ({row.status_code})" if row.status_code else ""
    if row.delivered_at:
        return f"{_('delivered')}{answer}"
    if row.given_up_at:
        return f"{_('given up')}: {row.last_error}"
    return f"{_('will be tried again')}: {row.last_error}" if row.attempt else str(_("waiting"))
