"""The PyTorch part: importing ``torch_smddp`` from here registers the backend ``smddp``."""
