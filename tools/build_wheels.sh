#!/bin/sh
# Build the wheels of the entrypoint and of the engine for one torch or TensorFlow, into
# dist/wheels/torch-VERSION-PYTHON or dist/wheels/tensorflow-VERSION-PYTHON.
# Usage: build_wheels.sh PYTHON, a Python with torch or TensorFlow. It needs a C++20 compiler and that Python's headers.
# The engine's wheel needs at least the glibc of this machine, and its name says so.
set -eu
python=$1
cd "$(dirname "$0")/.."
name=$(TF_CPP_MIN_LOG_LEVEL=3 "$python" - <<'END'
import importlib
import importlib.util
import sys

frameworks = [name for name in ("torch", "tensorflow") if importlib.util.find_spec(name)]
if not frameworks:
    sys.exit(f"{sys.executable} has neither torch nor tensorflow")
print(*(f"{name}-{importlib.import_module(name).__version__}" for name in frameworks), "cp%d%d" % sys.version_info[:2], sep="-")
END
)
tools=build/wheel-tools-${name##*-}
target=dist/wheels/$name
"$python" -m pip install --quiet --disable-pip-version-check --upgrade --target="$tools" \
    'scikit-build-core>=0.11,<2' 'cmake>=3.20,<4' 'ninja>=1.11' 'hatchling>=1.27'
rm -rf "$target"
PATH="$PWD/$tools/bin:$PATH" PYTHONPATH="$PWD/$tools" "$python" -m pip wheel --quiet --disable-pip-version-check \
    --no-index --no-deps --no-build-isolation --wheel-dir="$target" ./native ./containers/entrypoint
"$python" tools/wheel_platform.py "$target"/*.whl
ls -1 "$target"/*.whl
