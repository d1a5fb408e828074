"""Services to try against: clouds, faulty ones, crowds of clients."""
