"""The probe of the network at the start of a job: rate and latency of each link, compared with the known rate."""
