"""Alembic environment; shipped in the wheel and run when the service starts."""
