#!/bin/sh
# install_packages.sh VENV PACKAGE...: install packages into a virtual environment, and make it if it does not exist. uv
# resolves the versions of large packages in seconds, pip in many minutes. uv does not read pip's configuration, so pip
# is the fallback.
set -eu
venv=$1
shift
test -x "$venv/bin/python" || "${PYTHON:-python3}" -m venv "$venv"
if "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.5,<1' &&
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "$@"; then
    exit 0
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
