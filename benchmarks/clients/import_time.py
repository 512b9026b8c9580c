"""How long importing the client takes in a clean interpreter, asyncio and all."""

import subprocess
import sys

from common import main, percentiles

# The two classes by name: the package alone may load them only when they are used.
CODE = """
import time
begin = time.perf_counter()
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
print(time.perf_counter() - begin)
"""


def import_time(work):
    times = []
    for number in range(work.records + 1):
        # Isolated, or the sources in the working directory would be everyone's package.
        command = [sys.executable, "-I", "-c", CODE]
        shown = subprocess.run(command, capture_output=True, check=True)
        # The first one may have to write byte code.
        if number:
            times.append(float(shown.stdout))
    return percentiles(times)


if __name__ == "__main__":
    main({"import_time": import_time})
