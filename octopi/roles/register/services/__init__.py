"""What a register offers clients and operators: one module for each service."""
