"""What a node counts while it works, cheaply; what is only known on request is
collected in `octopi.admin.metrics`."""
