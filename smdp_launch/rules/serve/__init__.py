"""The section ``serve``: a model that cannot be served is found before its training is paid for."""
