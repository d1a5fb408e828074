#!/bin/sh
# install_packages.sh VENV PACKAGE...: packages into a virtual environment, which is made if it is not there. uv chooses
# among the versions of large packages in seconds, pip in many minutes. uv reads no configuration of pip's, so what it
# cannot install is left to pip.
set -eu
venv=$1
shift
test -x "$venv/bin/python" || "${PYTHON:-python3}" -m venv "$venv"
if "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.5,<1' &&
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "$@"; then
    exit 0
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
