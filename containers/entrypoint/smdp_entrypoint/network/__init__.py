"""The probe of the network between the hosts at the start: rate and latency of each link, compared with the known rate."""
