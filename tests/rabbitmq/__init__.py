"""RabbitMQ's users, permissions and remote control, with a whole shop on them."""
