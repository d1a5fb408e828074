"""Random faults on real jobs (under_fire.py): what may happen, a rank's life, the lane it runs in, the judge."""
