"""Prints where the installed TensorFlow keeps headers and library, one ``name=value`` a line, or nothing.

Run with ``python -I``, for the same reason as locate_torch.py.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
try:
    import tensorflow as tf
except ImportError:
    sys.exit(0)

# All but the include folder, which is given as a system's: its headers warn.
flags = [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith(("-I", "--std", "-std"))]
library = next(flag for flag in tf.sysconfig.get_link_flags() if flag.startswith("-l"))
print(f"version={tf.__version__}")
print(f"include={tf.sysconfig.get_include()}")
print(f"library_folder={tf.sysconfig.get_lib()}")
print(f"library={library}")
print(f"flags={';'.join(flags)}")
