"""The console: pages for a browser, served by every node."""
