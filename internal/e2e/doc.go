// Package e2e tests the main job end to end, in one process and on real parts:
// Postgres, the embedded broker, the sandbox channel, and every role. It holds no
// code of its own.
package e2e
