// Command settleonce settles payment commands at most once: the workers, the
// operator's tools and the development stack in one binary.
//
//	settleonce dev            everything on this machine, for trying it out
//	settleonce all            every role in one process
//	settleonce status KEY     what became of a payment
//
// `settleonce help` lists the commands; each one's help begins with examples.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	p := process{
		path: os.Args[0], args: os.Args[1:], env: os.Environ(),
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		signals: signals,
	}
	os.Exit(p.run(context.Background()))
}
