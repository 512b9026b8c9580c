"""What users see of whatever stands still."""
