"""Prints what the adapter of a framework needs, one ``name=value`` a line, or nothing: locate.py torch|tensorflow

Run with ``python -I``: pip builds in an environment of its own that hides the installed packages by PYTHONPATH, and the
adapter must be built for the framework that it will be loaded with.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from smdp_engine.adapters import installed
from smdp_engine.adapters.compiler import needs
from smdp_engine.adapters.files import name_of

found = installed(sys.argv[1])
if found is not None:
    wanted = needs(found)
    print(f"version={found.version}")
    print(f"name={name_of(found)}")
    print(f"standard={wanted.standard}")
    print(f"includes={';'.join(wanted.includes)}")
    print(f"definitions={';'.join(f'{name}={value}' for name, value in wanted.definitions)}")
    print(f"library_folder={wanted.library_folder}")
    print(f"libraries={';'.join(wanted.libraries)}")
