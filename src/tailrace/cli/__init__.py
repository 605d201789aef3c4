"""The command line: a command is a function that opens a lake, calls it, and prints.

Data goes to standard output, messages to standard error. `main` is where it begins; what a
command needs is imported when the command runs, so that help and completion come at once.
"""
