package torture

// registered reports whether a run keeps its callers in the table, which every odd
// seed does; the others go by the settings.
func registered(seed uint64) bool { return seed%2 == 1 }
