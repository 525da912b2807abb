"""From aligned ticks to verdicts: detectors, evidence, decision, the per-job pipeline."""
