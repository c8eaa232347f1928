package jsonl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

// MaxLines bounds what Read keeps in memory: about 1 KB for each line.
const MaxLines = 1_000_000

var (
	// ErrTooManyLines says that the input has more than MaxLines lines.
	ErrTooManyLines = fmt.Errorf("more than %d lines, split the file", MaxLines)
	// ErrEncoding says that the input is UTF-16.
	ErrEncoding = errors.New("the input is UTF-16, save it as UTF-8")
)

// Line is one valid command.
type Line struct {
	// Number of the line, from 1; 0 for a command that did not come from a line.
	Number int
	// Command is complete and valid.
	Command payment.Command
	// Generated says that the line had no idempotencyKey and got one.
	Generated bool
}

// Problem is what is wrong with one line. The line was left out of the input.
type Problem struct {
	// Line is its number, from 1.
	Line int
	// Field is the JSON name of the field that is wrong; empty for the whole line.
	Field string
	// Sentence says what to change. It never repeats the value.
	Sentence string
}

// String reads like "line 17: amount must be between 1 and 9007199254740991 minor units".
func (p Problem) String() string {
	if p.Field == "" {
		return fmt.Sprintf("line %d: %s", p.Line, p.Sentence)
	}
	return fmt.Sprintf("line %d: %s %s", p.Line, p.Field, p.Sentence)
}

// Input is what Read found: the commands and the mistakes, each in the order of
// the lines.
type Input struct {
	Lines    []Line
	Problems []Problem
}

// Generated reports whether any command got its key here, and so exists nowhere
// else yet.
func (in *Input) Generated() bool {
	for i := range in.Lines {
		if in.Lines[i].Generated {
			return true
		}
	}
	return false
}

// Read reads JSON lines to their end. Each line is a whole command, or one
// without idempotencyKey, which gets a fresh one (and operation and issuedAt
// where these are missing too). Unknown fields are mistakes, since they may be
// misspelled ones; so is a second line with the key of an earlier one and other
// content. Empty lines, CRLF and a UTF-8 byte order mark are fine.
//
// The error is that of r, ErrTooManyLines or ErrEncoding; mistakes in lines are in
// Input.Problems.
func Read(r io.Reader) (Input, error) {
	reader := &lineReader{
		in:   bufio.NewReaderSize(r, payment.MaxCommandBytes+len(bom)+len("\r\n")),
		seen: make(map[payment.Identity]firstUse),
	}
	for number := 1; ; number++ {
		text, err := reader.next(number)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return Input{}, fmt.Errorf("read line %d: %w", number, err)
		}
		switch {
		case number > MaxLines && (len(text) > 0 || errors.Is(err, bufio.ErrBufferFull)):
			return Input{}, ErrTooManyLines
		case errors.Is(err, bufio.ErrBufferFull):
			reader.problem(number, "", fmt.Sprintf("is longer than %d bytes", payment.MaxCommandBytes))
		case len(text) > 0:
			reader.line(number, text)
		}
		if errors.Is(err, io.EOF) {
			return reader.input, nil
		}
	}
}

const bom = "\xef\xbb\xbf"

type firstUse struct {
	line        int
	fingerprint payment.Fingerprint
}

type lineReader struct {
	in    *bufio.Reader
	input Input
	seen  map[payment.Identity]firstUse
}

// next returns the next line without the space around it; the slice is valid
// until the next call. A line that does not fit the buffer is read over, and
// reported as bufio.ErrBufferFull, or as the error that ended it.
func (l *lineReader) next(number int) ([]byte, error) {
	text, err := l.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, l.skip()
	}
	if number == 1 {
		if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
			return nil, ErrEncoding
		}
		text = bytes.TrimPrefix(text, []byte(bom))
	}
	return bytes.Trim(text, " \t\r\n"), err
}

// skip reads to the end of a line. At the end of the input the line is still
// reported as too long; the next call finds the end again.
func (l *lineReader) skip() error {
	for {
		_, err := l.in.ReadSlice('\n')
		if err == nil || errors.Is(err, io.EOF) {
			return bufio.ErrBufferFull
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

func (l *lineReader) problem(number int, field, sentence string) {
	l.input.Problems = append(l.input.Problems, Problem{Line: number, Field: field, Sentence: sentence})
}

func (l *lineReader) line(number int, text []byte) {
	cmd, generated, err := decode(text)
	var invalid *payment.CommandError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == payment.DeadUnreadable:
		l.problem(number, "", invalid.Problem+"; write one command per line, as jq -c does")
	case errors.As(err, &invalid):
		l.problem(number, invalid.Field, invalid.Problem)
	case err != nil:
		l.problem(number, "", err.Error())
	default:
		l.keep(Line{Number: number, Command: cmd, Generated: generated})
	}
}

// keep takes a command unless its key stands for other content already: the
// consumer would answer the second one IDEMPOTENCY_CONFLICT (G8).
func (l *lineReader) keep(line Line) {
	fingerprint, err := line.Command.Fingerprint()
	if err != nil {
		l.problem(line.Number, "", err.Error())
		return
	}
	id := line.Command.Identity()
	first, known := l.seen[id]
	if known && first.fingerprint != fingerprint {
		l.problem(line.Number, "idempotencyKey", fmt.Sprintf(
			"is that of line %d, which has other content; a new intent needs a new key, a retry the same content", first.line))
		return
	}
	if !known {
		l.seen[id] = firstUse{line: line.Number, fingerprint: fingerprint}
	}
	l.input.Lines = append(l.input.Lines, line)
}

// decode reads a command, or completes an intent and reads that, so that there is
// one reading of a command and one wording of its mistakes.
func decode(text []byte) (cmd payment.Command, generated bool, err error) {
	names := memberNames(text)
	if names == nil || names["idempotencyKey"] {
		cmd, err = payment.DecodeStrict(text)
		return cmd, false, err
	}
	key, err := uuid.NewRandom()
	if err != nil {
		return payment.Command{}, false, fmt.Errorf("make idempotency key: %w", err)
	}
	completed := fmt.Appendf(nil, `{"idempotencyKey":%q`, key)
	if !names["operation"] {
		completed = fmt.Appendf(completed, `,"operation":%q`, payment.OperationCharge)
	}
	if !names["issuedAt"] {
		now := time.Now().UTC().Truncate(time.Microsecond)
		completed = fmt.Appendf(completed, `,"issuedAt":%q`, now.Format(time.RFC3339Nano))
	}
	if len(names) > 0 {
		completed = append(completed, ',')
	}
	cmd, err = payment.DecodeStrict(append(completed, text[1:]...)) // text starts with the brace
	return cmd, true, err
}

// memberNames returns the names in a JSON object, nil if text is none.
func memberNames(text []byte) map[string]bool {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	names := make(map[string]bool)
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil
		}
		if text, ok := name.(string); ok {
			names[text] = true
		}
	}
	return names
}
