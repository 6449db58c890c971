"""What goes wrong in a run: faults as data, who injects them, and which data they must spare."""
