"""Tests of the four packages; every claim is a function name."""
