"""Prints the status messages of orders as they arrive in a private reply queue.

    python examples/follow_orders.py --broker amqp://user:password@broker// --queue reply.0123...
    python examples/follow_orders.py --broker redis://broker:6379/0          --queue reply.0123...
    python examples/follow_orders.py --broker pgmq://user:password@database/orders --queue reply.0123...

`POST /api/v1/reply-tokens/` returns a token and its queue. The shop sends the status of orders that name the token as
`reply_to` to this queue, where messages wait until they are read. Needs only `pip install "kombu[redis,pgmq]"`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from kombu import Connection, Consumer, Message, Queue
from psycopg.conninfo import conninfo_to_dict, make_conninfo


def connect(url: str) -> Connection:
    """Connect to the broker at this address. PGMQ's queues are tables: its transport needs the database's connection string."""
    if url.startswith("pgmq://"):
        database = make_conninfo(**conninfo_to_dict("postgresql://" + url.removeprefix("pgmq://")))
        return Connection("pgmq://", transport_options={"conn_string": database, "init_extension": False, "polling_interval": 0.2})
    return Connection(url)


def follow(connection: Connection, name: str, patience: float | None = None) -> Iterator[dict[str, Any]]:
    """Yield status messages. A message is acknowledged when the caller asks for the next one: until then it stays queued.

    Ends when no message has come for `patience` seconds.
    """
    arrived: list[tuple[dict[str, Any], Message]] = []

    def keep(body: Any, message: Message) -> None:
        content = json.loads(body) if isinstance(body, str | bytes) else body
        arrived.append(({"id": message.properties.get("message_id") or message.headers["webhook-id"], **content}, message))

    on_rabbitmq = connection.transport.driver_type == "amqp"  # there the shop declares it, and your user may only read it
    queue = Queue(name, durable=True, no_declare=on_rabbitmq)
    with Consumer(connection.default_channel, [queue], callbacks=[keep], accept=["json"], prefetch_count=20):
        while True:
            while arrived:
                content, message = arrived.pop(0)
                yield content
                message.ack()
            try:
                connection.drain_events(timeout=patience)
            except TimeoutError:
                if not arrived:
                    return


def main() -> int:
    """Print one line for each message, and mark late or repeated messages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", required=True, help="amqp://, redis:// or pgmq://")
    parser.add_argument("--queue", required=True, help="the name that came with the token")
    parser.add_argument("--patience", type=float, default=None, metavar="SECONDS", help="end when no message comes for so long")
    options = parser.parse_args()
    newest: dict[str, int] = {}
    with connect(options.broker) as connection:
        for message in follow(connection, options.queue, options.patience):
            order, seq, status = message["data"]["order"], message["data"]["seq"], message["data"]["status"]
            # Messages are delivered at least once and in any order: the highest seq is the newest.
            note = "" if seq > newest.get(order, 0) else "   (late or repeated)"
            newest[order] = max(seq, newest.get(order, 0))
            print(f"{message['timestamp']}  {order}  {seq:>3}  {status}{note}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
