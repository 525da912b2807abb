"""Notifications: a stored outbox, a dispatcher that empties it, one file per receiver."""
