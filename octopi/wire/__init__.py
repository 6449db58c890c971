"""The wire protocol: messages, their encoding, and the endpoints that allow them."""
