"""What a broker offers its clients: one module for each service."""
