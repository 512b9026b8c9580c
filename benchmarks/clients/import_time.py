"""How long ``import aiokafka`` takes in a clean interpreter, asyncio and all."""

import subprocess
import sys

from common import main, percentiles

CODE = "import time; b = time.perf_counter(); import aiokafka; print(time.perf_counter() - b)"


def import_time(work):
    times = []
    for number in range(work.records + 1):
        shown = subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True)
        # The first one may have to write byte code.
        if number:
            times.append(float(shown.stdout))
    return percentiles(times)


if __name__ == "__main__":
    main({"import_time": import_time})
