"""What annotations name: what Python 3.10 lacks, and types whose modules are loaded when asked for.

Containers that fill in arguments evaluate the hints of a function. Python then looks each name up
in the module of the function, and fails for one that is imported for type checkers only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack
elif sys.version_info >= (3, 11):
    from typing import Self, Unpack
else:
    Self = Any

    class Unpack:
        """Stand for the types of options, which Python 3.10 cannot name one by one."""

        def __class_getitem__(cls, options: Any) -> Any:
            return Any


__all__ = ["Self", "Unpack", "later"]


def later(path: str) -> Any:
    """Return a stand-in for the type at `path`, whose module is loaded when hints are evaluated.

    It is for a module that a program may never need, or that imports the one with the annotation.
    `typing` takes it for the type, except where parameters of the type are given.
    """
    module, _, name = path.rpartition(".")
    stand_in = ForwardRef(f"__import__({module!r}, fromlist=({name!r},)).{name}")
    if sys.version_info >= (3, 11):
        return stand_in
    return Annotated[stand_in, "later"]  # a bare one cannot be part of a union there
