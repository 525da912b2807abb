"""The picture of an alert, for where people read messages: collected, drawn, bounded, signed."""
