"""The local cloud in place of AWS, for one block of your own tests and notebooks."""

from smdp_launch.testing.cloud import LocalCloud, local_cloud

__all__ = ["LocalCloud", "local_cloud"]
