package producer

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

var (
	// ErrInvalid says that a command breaks the contract. Nothing was sent. The
	// error is an *InvalidError, which says what to change.
	ErrInvalid = errors.New("invalid command")
	// ErrUnknown says that commands may or may not be in Kafka, now or later.
	// Publish the same commands again, with the same keys: one that was there
	// already is not charged again (G1). The error is an *UnknownError.
	ErrUnknown = errors.New("may or may not be in Kafka")
	// ErrClosed says that the producer was closed before the call. Nothing was sent.
	ErrClosed = errors.New("producer is closed")
)

// CommandError is what is wrong with one command of a call.
type CommandError struct {
	// Index is the command's position in the call, from 0.
	Index int
	// Key is the command's idempotencyKey.
	Key uuid.UUID
	// Err is the reason.
	Err error
}

// Error names the command and the reason.
func (e CommandError) Error() string {
	return fmt.Sprintf("command %d (%s): %v", e.Index, e.Key, e.Err)
}

// Unwrap gives errors.Is and errors.As the reason.
func (e CommandError) Unwrap() error { return e.Err }

// InvalidError lists the commands of a call that break the contract. Nothing of
// the call was sent. It is an ErrInvalid; each reason is a *payment.CommandError.
type InvalidError struct {
	// Commands are the invalid ones, in the order of the call.
	Commands []CommandError
}

// Error quotes the first problem and counts the others.
func (e *InvalidError) Error() string {
	return "nothing was published: " + quote(e.Commands)
}

// Is matches ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// Unwrap gives errors.As the problems.
func (e *InvalidError) Unwrap() []error { return reasons(e.Commands) }

// UnknownError lists the commands of a call that may or may not be in Kafka; the
// others are there. It is an ErrUnknown.
type UnknownError struct {
	// Commands are the unconfirmed ones, in the order of the call.
	Commands []CommandError
}

// Error says what to do and quotes the first reason.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("%d commands may or may not be in Kafka, publish the same ones again with the same keys: %s",
		len(e.Commands), quote(e.Commands))
}

// Is matches ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// Unwrap gives errors.Is and errors.As the reasons.
func (e *UnknownError) Unwrap() []error { return reasons(e.Commands) }

// Again picks the commands to publish again out of those of the call.
func (e *UnknownError) Again(cmds []payment.Command) []payment.Command {
	again := make([]payment.Command, 0, len(e.Commands))
	for _, c := range e.Commands {
		if c.Index < len(cmds) {
			again = append(again, cmds[c.Index])
		}
	}
	return again
}

func quote(commands []CommandError) string {
	if len(commands) == 0 {
		return "no command is named"
	}
	if len(commands) == 1 {
		return commands[0].Error()
	}
	return fmt.Sprintf("%v, and %d more", commands[0], len(commands)-1)
}

func reasons(commands []CommandError) []error {
	out := make([]error, len(commands))
	for i, c := range commands {
		out[i] = c
	}
	return out
}
