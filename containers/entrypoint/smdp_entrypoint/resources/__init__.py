"""The resources that a host uses while it trains: processors, memory, disks, network, GPUs and input channels."""
