"""The operations and results of clients, and the checker for them."""
