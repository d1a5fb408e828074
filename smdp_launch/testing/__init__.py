"""For a person's own tests and notebooks: the local cloud in place of AWS, for one block."""

from smdp_launch.testing.cloud import LocalCloud, local_cloud

__all__ = ["LocalCloud", "local_cloud"]
