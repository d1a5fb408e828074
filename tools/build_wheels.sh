#!/bin/sh
# Builds the wheels of the entrypoint and of the engine for one torch, into dist/wheels/torch-VERSION-PYTHON.
# Usage: build_wheels.sh PYTHON, a Python that has that torch; it needs a C++20 compiler and the headers of that Python.
set -eu
python=$1
cd "$(dirname "$0")/.."
name=$("$python" -c 'import sys, torch; print("torch-%s-cp%d%d" % (torch.__version__, *sys.version_info[:2]))')
tools=build/wheel-tools-${name##*-}
target=dist/wheels/$name
"$python" -m pip install --quiet --disable-pip-version-check --upgrade --target="$tools" \
    'scikit-build-core>=0.10,<2' 'cmake>=3.20,<4' 'ninja>=1.11' 'hatchling>=1.24'
rm -rf "$target"
PATH="$PWD/$tools/bin:$PATH" PYTHONPATH="$PWD/$tools" "$python" -m pip wheel --quiet --disable-pip-version-check \
    --no-index --no-deps --no-build-isolation --wheel-dir="$target" ./native ./containers/entrypoint
ls -1 "$target"/*.whl
