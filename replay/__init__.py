"""Recorded incidents through the live path: scoring, reports, training, benchmark."""
