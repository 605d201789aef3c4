"""What the tests stand on: servers of their own, lakes to open, an independent reader."""
