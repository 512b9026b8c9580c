"""Plant known faults into a copy of the package, one at a time, and see what notices each.

`python -m tests.mutants` (or `make mutants`) runs the lists beside this file: the faults of
`simulation.txt` against the simulation, until a seed finds each, and those of `suite.txt` and of
`strangers.txt` against the tests that run the changed lines. Strangers have not written the tests.
What nothing notices shows what is not proved.
"""
