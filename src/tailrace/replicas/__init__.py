"""Replicas: keyed copies of a table, with a choice of columns and rows."""

from tailrace.propagation.consumer import register_consumer
from tailrace.replicas.replica import Replica

register_consumer("replica", Replica())
