"""Many runs: campaigns over seeds, exhaustive searches, shrinking, and the check of determinism."""
