"""The simulated network: connections, routes, and links of messages or WebSocket bytes."""
