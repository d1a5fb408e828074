"""Prints where the installed torch keeps headers and libraries, one ``name=value`` a line, or nothing.

Run with ``python -I``: pip builds in an environment of its own that hides the installed packages by
PYTHONPATH, and the adapter must be built against the torch it will be loaded with.
"""

import sys
import sysconfig

try:
    import torch
    from torch.utils import cpp_extension
except ImportError:
    sys.exit(0)

print(f"version={torch.__version__}")
print(f"include={';'.join([*cpp_extension.include_paths(), sysconfig.get_paths()['include']])}")
print(f"libraries={cpp_extension.TORCH_LIB_PATH}")
print(f"cxx11_abi={int(torch._C._GLIBCXX_USE_CXX11_ABI)}")
print(f"suffix={sysconfig.get_config_var('EXT_SUFFIX')}")
# Modules know each other's C++ types only if their pybind11 agrees on these, whatever compiler built each.
for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
    value = getattr(torch._C, f"_PYBIND11_{name}", None)
    print(f"pybind11_{name.lower()}={value or ''}")
