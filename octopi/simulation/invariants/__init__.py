"""What may never happen inside a cluster, checked at the moment at which it would."""
