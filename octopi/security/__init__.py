"""Authentication and authorization: tokens, grants, quotas, join secrets, TLS and origins."""
