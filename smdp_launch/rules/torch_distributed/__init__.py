"""Rules about torch.distributed with its own backends: fabric, precision, memory and launchers"""
