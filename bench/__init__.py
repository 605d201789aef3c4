"""What Tailrace's operations cost, each beside a comparison from the same run.

`python -m bench` runs every measurement of `bench.__main__.MEASUREMENTS` and prints one table;
`python -m bench NAME…` some of them. Always true: contestants take turns and the medians are
compared, because the machine is noisy; a target that is missed is printed as missed; everything
is written to a temporary directory that is gone at the end.
"""
