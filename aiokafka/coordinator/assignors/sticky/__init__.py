"""Even assignments that change as little as possible."""
