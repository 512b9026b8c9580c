"""The sticky assignor: even assignments that change as little as possible."""
