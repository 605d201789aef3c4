"""How the result of a plan changes with its tables, and how the stored rows do."""
