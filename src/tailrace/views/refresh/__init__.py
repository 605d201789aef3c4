"""One refresh of a view: what it reads, which way it takes, and how that is run and stored."""
