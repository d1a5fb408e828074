"""Random faults in real jobs (inject_faults.py): the faults, the script of a rank, the hosts of the job, the judge."""
