"""The numbers of a run, from its events (docs/reference/events.md), for views, reports and the diagnosis."""
