"""What clients did and saw, and the checker that judges it."""
