"""Whether a file moves anything to a device other than the CPU."""

from __future__ import annotations

import ast
import re

from smdp_launch.source.syntax.scopes import dotted, tail
from smdp_launch.source.syntax.tree import Syntax, keywords

_SETTERS = {"cuda", "set_default_device", "set_default_tensor_type", "set_device", "xla_device", "current_accelerator"}
_KEYWORDS = {"device", "device_map", "device_ids", "device_id"}
_DEVICE = re.compile(r"(cuda|gpu|xla|mps|npu|hpu|xpu)(:.*)?", re.IGNORECASE)
_NO_DEVICE = re.compile(
    r"(torch\.)?(b?float(16|32|64)?|bfloat16|double|half|long|u?int(8|16|32|64)?|bool|short|\w*dtype\w*)"
    r"|torch\.(channels_last|preserve_format|contiguous_format)"
)
_ABOUT_DEVICES = re.compile(r"cuda|gpu|xla|mps|npu|hpu|xpu|accelerat|neuron|rank_?device|get_device", re.IGNORECASE)
_LONGEST = 40  # characters of a device's name
_VARIABLES = {"device", "dev", "self.device", "self._device", "self.dev"}
#: Calls whose argument "cuda" moves nothing.
_CONTEXTS = {"autocast", "GradScaler", "SDPBackend"}


def uses_other_devices(syntax: Syntax, *, variables: bool) -> bool:
    """Whether the file moves something to a device other than the CPU.

    Args:
        variables: count moves to a variable called ``device``, which may be any device.
    """
    on_cpu = _names_of_the_cpu(syntax) if variables else _names_of_the_cpu(syntax) | _VARIABLES
    return any(_moves(call, name, on_cpu) for call, name, _ in syntax.calls) or _names_a_device(syntax)


def names_other_devices(syntax: Syntax) -> bool:
    """Whether a name or a text of the file is about a device other than the CPU.

    If no file of a program has such a name, a variable called ``device`` is the CPU.
    """
    if any(_ABOUT_DEVICES.search(name) for name in syntax.uses):
        return True
    values = (node.value for node in syntax.all(ast.Assign) for one in node.targets if dotted(one) in _VARIABLES)
    if any(not _is_cpu(one) for one in values):
        return True  # such as a rank, which is the number of a GPU
    texts = (one.value for one in syntax.all(ast.Constant) if isinstance(one.value, str) and len(one.value) < _LONGEST)
    return any(_ABOUT_DEVICES.search(one) for one in texts)


def _moves(call: ast.Call, name: str, on_cpu: set[str]) -> bool:
    if name in _SETTERS:
        return name != "cuda" or isinstance(call.func, ast.Attribute)
    if name == "to" and isinstance(call.func, ast.Attribute):
        return any(_may_be_device(one, on_cpu) for one in [*call.args[:1], *keywords(call).values()])
    return any(_may_be_device(one.value, on_cpu) for one in call.keywords if one.arg in _KEYWORDS)


def _may_be_device(node: ast.expr, on_cpu: set[str]) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and not isinstance(node.value, bool)
    if isinstance(node, ast.Call) and tail(node.func) == "device":
        return any(_may_be_device(one, on_cpu) for one in node.args)
    return dotted(node) not in on_cpu and _NO_DEVICE.fullmatch(dotted(node)) is None


def _names_of_the_cpu(syntax: Syntax) -> set[str]:
    """Names to which the file assigns only the CPU, without parameters."""
    values: dict[str, list[bool]] = {}
    for node in syntax.all(ast.Assign):
        for target in node.targets:
            values.setdefault(dotted(target), []).append(_is_cpu(node.value))
    functions = syntax.all(ast.FunctionDef, ast.AsyncFunctionDef)
    parameters = {each.arg for one in functions for each in (*one.args.args, *one.args.kwonlyargs)}
    return {name for name, are in values.items() if name and all(are)} - parameters


def _is_cpu(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and tail(node.func) == "device" and len(node.args) == 1:
        return _is_cpu(node.args[0])
    return isinstance(node, ast.Constant) and node.value == "cpu"


def _names_a_device(syntax: Syntax) -> bool:
    texts = [
        one
        for one in syntax.all(ast.Constant)
        if isinstance(one.value, str) and _DEVICE.fullmatch(one.value) is not None
    ]
    if not texts:
        return False
    in_contexts = {
        id(argument)
        for call, name, _ in syntax.calls
        if name in _CONTEXTS
        for argument in (*call.args, *keywords(call).values())
    }
    return any(id(one) not in in_contexts for one in texts)
