"""Denoisers: what turns a noisy window of one metric into the window that is compared."""
