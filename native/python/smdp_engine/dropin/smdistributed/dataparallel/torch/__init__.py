"""The PyTorch side: ``import smdistributed.dataparallel.torch.torch_smddp`` registers the backend ``smddp``."""
