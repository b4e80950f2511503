"""Pictures of what a run holds."""
