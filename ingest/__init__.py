"""From any wire format to aligned ticks: catalogue, formats, recordings, alignment, simulation."""
