"""Frozen dataclasses for which no code is written when they are imported."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options):
        return lambda cls: cls


__all__ = ["Frozen"]


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    eq_default=False,
    field_specifiers=(dataclasses.field,),
)
class Frozen:
    """Base of frozen dataclasses that are made with keywords only; every field has a default.

    The methods stand here. `dataclass` would write and compile them for each class, which takes a
    good part of the time that the import of a client takes. Making an object takes longer.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)

    def __init__(self, **values: Any) -> None:
        for name, field in self.__dataclass_fields__.items():
            if name in values:
                value = values.pop(name)
            elif field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            else:
                value = field.default
            # Not setattr: the object is frozen.
            self.__dict__[name] = value
        if values:
            raise TypeError(f"{type(self).__name__} has no field {min(values)!r}")
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the fields together."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        fields = [f for f in self.__dataclass_fields__.values() if f.repr]
        shown = ", ".join([f"{f.name}={getattr(self, f.name)!r}" for f in fields])
        return f"{type(self).__qualname__}({shown})"
