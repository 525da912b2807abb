"""What is learned ahead of a job: healthy scales, denoisers, fault signatures, the registry."""
