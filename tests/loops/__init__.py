"""The clients on event loops other than asyncio's own."""
