"""Topics of a cluster without a register, on one broker: in the logs of their homes."""
