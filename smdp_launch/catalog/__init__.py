"""Dated tables of instance types, frameworks, images, regions and request limits, with typed look-ups."""
