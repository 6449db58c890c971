"""The register: membership, placement and leadership of a cluster."""
