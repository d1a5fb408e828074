"""What the launcher records of jobs: those launched from a folder, how each ended, and which local cloud ran it."""
