"""Random faults in real jobs (under_fire.py): the faults, the script of a rank, the hosts of the job, the judge."""
