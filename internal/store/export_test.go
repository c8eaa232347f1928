package store

// SessionSettings are what OpenPool sets, for a pool that also listens to plans.
func SessionSettings() map[string]string { return sessionSettings }
