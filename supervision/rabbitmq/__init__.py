"""RabbitMQ's users: what each role declares, may do, and how the users are set up."""
