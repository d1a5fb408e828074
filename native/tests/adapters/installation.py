"""A copy of the installed package without its adapters, which builds them with a compiler that takes no time."""

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import List

from smdp_engine import adapters

PACKAGE = Path(str(importlib.util.find_spec("smdp_engine").origin)).parent  # type: ignore[union-attr]
SHIPPED = next((one for one in adapters.shipped() if one.framework == "torch"), None)


class Installation:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.calls = folder / "calls"
        hidden = shutil.ignore_patterns("torch-*.so", "tensorflow-*.so", "__pycache__")
        shutil.copytree(PACKAGE, folder / "installed" / "smdp_engine", ignore=hidden)
        # A compiler that takes no time: it writes the adapter that was installed.
        self.compiler = folder / "compiler"
        self.use_compiler(
            textwrap.dedent(f"""\
            #!/bin/sh
            echo "$$" >>{self.calls}
            while [ "$1" != -o ]; do shift; done
            sleep 0.5
            cp {SHIPPED.path if SHIPPED else ""} "$2"
            """)
        )

    def use_compiler(self, script: str) -> None:
        """A running shell reads on in the file that it was started with."""
        new = self.folder / "new-compiler"
        new.write_text(script)
        new.chmod(0o755)
        new.replace(self.compiler)

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        paths = {"PYTHONPATH": str(self.folder / "installed"), "SMDP_ADAPTER_CACHE": str(self.cache)}
        return subprocess.Popen(
            [sys.executable, *(arguments or ("-m", "smdp_engine.adapters", "build", "torch"))],
            env={**os.environ, "CXX": str(self.compiler), **paths, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0, **environment: str) -> List[str]:
        """The lines of both outputs."""
        process = self.start(*arguments, **environment)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == code, errors
        return [*output.splitlines(), *errors.splitlines()]

    def built(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0
