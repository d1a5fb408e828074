"""What all models of the job file have in common."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

_VARIABLE = "PYDANTIC_DISABLE_PLUGINS"


class _WithoutPlugins(ModelMetaclass):
    """Makes models without pydantic's plugins.

    To find plugins, pydantic reads the metadata of every installed package, at each start; they are meant for the
    models of other programs. What is built later, such as the adapters for the values of a wrong file, has them.
    """

    def __new__(mcs, *args: Any, **options: Any) -> Any:
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = "__all__"
        try:
            return super().__new__(mcs, *args, **options)
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before


class Section(BaseModel, metaclass=_WithoutPlugins):
    """A mapping of the job file: no unknown keys, no conversions, no change after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
