"""What users wrote: the custom resources, parsed and typed."""
