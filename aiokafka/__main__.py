"""Run the command line: `python -m aiokafka`."""

from __future__ import annotations

import sys

from aiokafka.cli import main

if __name__ == "__main__":
    sys.exit(main())
