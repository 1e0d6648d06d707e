"""A network between the processes of a measurement: proxies that delay, and count how often a client waits for an answer."""
