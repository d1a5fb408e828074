"""Input channels that hosts read while they train: a read-only file system (FUSE), pipes, a limit of speed, counters"""
