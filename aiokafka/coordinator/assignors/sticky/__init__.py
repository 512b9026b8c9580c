"""Even shares that change as little as possible."""
