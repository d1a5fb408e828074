#!/bin/sh
# Print everything that the installation needs and this machine does not have. Usage: check_machine.sh PYTHON
python=$1
missing=0

lacks() {
    echo "missing: $1" >&2
    echo "    on Debian or Ubuntu: apt-get install $2" >&2
    missing=1
}

if ! command -v "$python" >/dev/null; then
    lacks "$python" "python3 python3-venv python3-dev"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    lacks "Python 3.10 or later ($("$python" --version) is installed; select another with make PYTHON=...)" "python3"
else
    "$python" -c 'import ensurepip, venv' 2>/dev/null || lacks "the venv module of $python" "python3-venv"
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' ||
        lacks "the headers of $python" "python3-dev"
fi
command -v g++ >/dev/null || lacks "g++" "g++"
exit $missing
