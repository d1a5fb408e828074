"""The PyTorch side: importing ``torch_smddp`` from here registers the backend ``smddp``."""
