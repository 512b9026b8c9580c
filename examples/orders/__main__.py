"""Watch orders go through Kafka while you kill members of a group and stop brokers.

    DEMO=orders make demo
    python examples/orders --port 8000

Then open the page that it prints. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import webbrowser


def main() -> int:
    """Serve the page until Ctrl-C."""
    start = time.perf_counter()
    parser = argparse.ArgumentParser(prog="orders", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="of the page (default 8000)")
    parser.add_argument("--host", default="127.0.0.1", help="address of the page")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    given = parser.parse_args()
    try:
        import uvicorn
    except ImportError:
        print("orders: the page needs a server: pip install uvicorn", file=sys.stderr)
        return 1
    from shop import Shop
    from web import App

    shop = Shop()
    imports = time.perf_counter() - start

    def started() -> None:
        for name, seconds in (("imports", imports), *shop.steps):
            print(f"{name:<36} {seconds:>7.3f} s")
        address = f"http://{given.host}:{given.port}/"
        print(f"\n{address}   (Ctrl-C ends the demo)", flush=True)
        if given.open:
            webbrowser.open(address)

    # Brokers that are stopped on purpose are on the page.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        uvicorn.run(
            App(shop, started), host=given.host, port=given.port, log_level="warning", lifespan="on"
        )
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
