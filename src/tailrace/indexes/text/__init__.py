"""Full text, on tantivy."""
