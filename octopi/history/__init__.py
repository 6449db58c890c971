"""The cluster's history: what nodes write about themselves to the topics ``_octopi.*``."""
