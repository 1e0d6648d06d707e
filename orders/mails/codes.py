"""Names that the door and the agent share. No database and no calls."""

WORKFLOW, SEND = "resend-mail", "send-mail-again"
MOST = 5  # times that an order's mail is sent again

NOT_SENT, TOO_OFTEN = "not_sent_yet", "sent_too_often"  # why it is refused
