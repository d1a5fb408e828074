#!/bin/sh
# Builds the torch backend against several versions of torch, each in a separate environment, and runs its core tests
# there. Usage: matrix.sh PYTHON VERSION... ("newest": what the package index gives)
# A version without a wheel for this Python is an error: set PYTHON to a suitable one.
set -eu
python=$1
shift
here=$(cd "$(dirname "$0")/../.." && pwd)
tests="torch/test_torch_backend.py torch/test_torch_surface.py late_device/test_device_tensors.py torch/test_futures.py torch/test_first_generation_functions.py torch/test_first_generation_training.py torch/test_first_generation_errors.py"

environment() { # folder version
    test -x "$1/bin/python" || "$python" -m venv "$1"
    torch=torch
    numpy=numpy
    upgrade=
    case $2 in
        newest) upgrade=--upgrade ;;
        2.[0-2].*) torch="torch==$2" numpy='numpy<2' ;; # which were built for it
        *) torch="torch==$2" ;;
    esac
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check $upgrade "$torch" "$numpy" 'setuptools<81' \
        'scikit-build-core>=0.11,<2' 'ninja>=1.11' 'pytest>=9,<10' 'pytest-timeout>=2.3,<3'
}

for version in "$@"; do
    folder=$here/.venv-torch-$version
    environment "$folder" "$version"
    built_for=$("$folder/bin/python" -c 'import torch; print(torch.__version__)')
    echo "torch $built_for: the engine is built and tested in $folder"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps \
        --no-build-isolation --config-settings=build-dir="build/torch-$built_for" "$here/native"
    (cd "$here/native/tests" && "$folder/bin/python" -m pytest -q -c "$here/native/tests/matrix.ini" \
        --rootdir "$here/native/tests" $tests)
done
