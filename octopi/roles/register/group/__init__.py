"""Several registers that keep one journal: see docs/agreement.md."""
