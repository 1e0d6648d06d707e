"""Receives webhooks and verifies their signatures, with the standard library only.

    WEBHOOK_SECRET=whsec_... python examples/verify_webhook.py --port 9000

`POST /api/v1/webhooks/` returns the secret. Copy `verify` into your own program. Libraries that do the same exist for
most languages (standardwebhooks.com).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_SECONDS = 300


def verify(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether this body was signed with our secret, not longer than TOLERANCE_SECONDS ago."""
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not message_id or not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = [part.partition(",") for part in headers.get("webhook-signature", "").split()]
    return any(version == "v1" and hmac.compare_digest(signature.encode(), expected.encode()) for version, _, signature in given)


class Receiver(BaseHTTPRequestHandler):
    """Answers quickly, and processes each message once."""

    protocol_version = "HTTP/1.1"
    secret = ""
    seen: set[str] = set()  # in production: a table with a unique column

    def do_POST(self) -> None:
        """Receive one message."""
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 1_000_000))
        genuine = verify(self.secret, {name.lower(): value for name, value in self.headers.items()}, body)
        if genuine and self.headers["webhook-id"] not in self.seen:
            self.seen.add(self.headers["webhook-id"])
            data = json.loads(body)["data"]
            print(f"{data['order']}  {data['seq']:>3}  {data['status']}", flush=True)
        self.send_response(204 if genuine else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print no access log."""


def main() -> int:
    """Listen for webhooks until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000)
    options = parser.parse_args()
    Receiver.secret = os.environ.get("WEBHOOK_SECRET", "")
    if not Receiver.secret.startswith("whsec_"):
        parser.error("set WEBHOOK_SECRET to the secret that the webhook came with")
    ThreadingHTTPServer((options.host, options.port), Receiver).serve_forever()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
