from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(folder: Path) -> str:
    name = "smdp_demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr("smdp_demo.py", "WORD = 'installed'")
        wheel.writestr("smdp_demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: smdp-demo\nVersion: 1.0\n")
        wheel.writestr(
            "smdp_demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("smdp_demo-1.0.dist-info/RECORD", "")
    return name
