"""What a node counts while it works, cheaply; what is only known when somebody asks is
collected in `octopi.admin.metrics`."""
