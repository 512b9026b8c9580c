"""Thousands of seeded scenarios: real clients, a simulated cluster, faults, and what must hold.

``python -m tests.simulation`` (or ``make simulate``) runs them. The parts, in the order of a run:

- :mod:`scenario`: what happens, drawn from a seed; plain data, which can be made smaller.
- :mod:`faults` and :mod:`workloads`: one class for each kind of fault and of program.
- :mod:`world`: what they share while a scenario runs. :mod:`calls`: calls of the client, watched.
- :mod:`history`: what the programs were told. :mod:`checks`: what must be true of it.
- :mod:`execution`: one scenario from its beginning to its verdict.
- :mod:`runner`, :mod:`reduction`, :mod:`timeline`: many seeds, a smaller failure, its story.
"""
