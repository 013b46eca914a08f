"""Tests of the node scripts."""
