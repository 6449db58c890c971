"""Simulated disks: page cache, device, and what goes wrong between them."""
