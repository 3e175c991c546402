"""Adapters from file formats to tables of roles, cut so that no record is ever split."""
