from pathlib import Path

import pytest
from installation import Installation


@pytest.fixture
def without(tmp_path: Path) -> Installation:
    """The package without its adapters."""
    return Installation(tmp_path)
