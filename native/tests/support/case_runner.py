"""Runs the cases of a program: each public function is a case, whose outcome is printed as a line of JSON."""

import json
import sys
import traceback
from typing import Any, Dict


def refused(call: Any, *words: str) -> None:
    try:
        call()
    except Exception as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("no error was raised")


def run_cases(names: Dict[str, Any]) -> None:
    """``names``: the program's globals."""
    own = [value for value in names.values() if getattr(value, "__module__", "") == "__main__"]
    for case in [function for function in own if not function.__name__.startswith("_")]:
        try:
            case()
            message = ""
        except Exception:
            message = traceback.format_exc()
        sys.stdout.write(json.dumps({"case": case.__name__, "error": message}) + "\n")
