"""Keep the metadata of the cluster up to date: which broker to ask, when, and for which topics."""
