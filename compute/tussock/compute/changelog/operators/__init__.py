"""Ready-made computations of streams: what is kept right of relational operators, record by record or by columns."""
