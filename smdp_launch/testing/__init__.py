"""A context manager that replaces AWS with the local cloud inside a ``with`` block of your tests and notebooks."""

from smdp_launch.testing.cloud import LocalCloud, local_cloud

__all__ = ["LocalCloud", "local_cloud"]
