"""Facts about hosting: instance types of endpoints, and AWS's inference images."""
