"""The base class of all models of the job file."""

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

    To find plugins, pydantic reads the metadata of every installed package at each start. The plugins are meant for
    the models of other programs. Adapters that are built later, for the values of an invalid file, have plugins.
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
    """A mapping of the job file: no unknown keys, no conversions, and immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
