"""A run as a page, a diagram, a timeline and lines of text."""
