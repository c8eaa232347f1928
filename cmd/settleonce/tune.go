package main

import (
	"os"
	"runtime/debug"
)

// A worker's live memory is small and its garbage short-lived, so the collector
// may run a fourth as often as by default; the limit keeps the whole process
// near 256 MiB at full load.
const (
	collectPercent = 400
	memoryLimit    = 224 << 20
)

// tuneMemory applies that, unless GOGC or GOMEMLIMIT say otherwise.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
