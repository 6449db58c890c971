"""Whole clusters on virtual time, networks and disks, one seed to each run."""
