"""What `aiokafka.protocol.compiler` would write for the newest versions of some messages.

They are the messages of a client's first steps, and of the members of groups: Python keeps these
modules compiled, while what is written in a process has to be compiled in each.
`python -m tests.house.codecs` writes them; a test compares them.
"""
