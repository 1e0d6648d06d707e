"""Names that the door and the agent share. No database and no calls."""

WORKFLOW, SEND = "resend-mail", "send-mail-again"
MOST = 5  # times that an order's mail is sent again

NOT_SENT, TOO_OFTEN = "not_sent_yet", "sent_too_often"  # why it is refused

ERASED_DOMAIN = "erased.invalid"  # of the addresses that stand in the place of those of erased persons


def leads_to_someone(address: str | None) -> bool:
    """Whether this is a mail address, and not what stands in the place of an erased person's."""
    return "@" in (address or "") and not str(address).endswith(f"@{ERASED_DOMAIN}")
