"""The node's roles: Trio shells around the machines, which decide."""
