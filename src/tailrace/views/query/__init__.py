"""What a query means: Spark SQL, translated to a plan of relational operators."""
