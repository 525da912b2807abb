"""How incidents are shown: words, the score grid, drawing code shared by page and report."""
