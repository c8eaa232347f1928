package torture

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// newPostgresProxy makes a proxy that loses commits, before they are done or
// after, as losses want.
func newPostgresProxy(l *losses) *proxy {
	return newTalkingProxy(func() dialogue {
		return &postgresTalk{losses: l, statements: map[string]bool{}, portals: map[string]bool{}}
	})
}

// postgresTalk passes the messages of one session on.
type postgresTalk struct {
	losses *losses

	// The client's side: whether the session has begun, and which prepared statements
	// and portals are a COMMIT.
	begun               bool
	statements, portals map[string]bool

	// The server's side: whether a transaction is open, and what is lost when the
	// round trip under way turns out to have committed.
	inside bool
	taken  loss
	failed bool
}

const (
	lengthBytes = 4
	// headBytes are the type and the length of a message.
	headBytes = 1 + lengthBytes
	// shortMessage is longer than any message that says COMMIT.
	shortMessage = 256
	// askEncryption and askGSS are the codes of the requests that no message type
	// precedes, and whose answer is no message.
	askEncryption = 80877103
	askGSS        = 80877104
)

var errEncrypted = errors.New("the session is to be encrypted: connect with sslmode=disable")

// up implements dialogue.
func (p *postgresTalk) up(from *bufio.Reader, to *bufio.Writer) error {
	if !p.begun {
		return p.begin(from, to)
	}
	head, err := from.Peek(headBytes)
	if err != nil {
		return err
	}
	kind, size := head[0], int64(binary.BigEndian.Uint32(head[1:]))
	if size < lengthBytes {
		return fmt.Errorf("a message of %d bytes", size)
	}
	if size <= shortMessage {
		whole, err := from.Peek(1 + int(size))
		if err != nil {
			return err
		}
		if p.commits(kind, whole[headBytes:]) && p.losses.take(commitRequest) {
			return errLost
		}
	}
	_, err = io.CopyN(to, from, 1+size)
	return err
}

func (p *postgresTalk) begin(from *bufio.Reader, to *bufio.Writer) error {
	const codeBytes = 4
	head, err := from.Peek(lengthBytes + codeBytes)
	if err != nil {
		return err
	}
	if code := binary.BigEndian.Uint32(head[lengthBytes:]); code == askEncryption || code == askGSS {
		return errEncrypted
	}
	p.begun = true
	_, err = io.CopyN(to, from, int64(binary.BigEndian.Uint32(head)))
	return err
}

// commits reads a short message of the client, and reports whether the server
// would commit on it.
func (p *postgresTalk) commits(kind byte, body []byte) bool {
	first, rest, _ := bytes.Cut(body, []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	switch kind {
	case 'Q': // a simple query
		return isCommit(first)
	case 'P': // prepares a statement
		p.statements[string(first)] = isCommit(second)
	case 'B': // binds a statement to a portal
		p.portals[string(first)] = p.statements[string(second)]
	case 'E': // executes a portal
		return p.portals[string(first)]
	}
	return false
}

func isCommit(sql []byte) bool {
	text := strings.ToLower(strings.TrimRight(strings.TrimSpace(string(sql)), "; "))
	return text == "commit" || text == "end"
}

// down implements dialogue.
func (p *postgresTalk) down(from *bufio.Reader, to *bufio.Writer) error {
	head, err := from.Peek(headBytes)
	if err != nil {
		return err
	}
	kind, size := head[0], int64(binary.BigEndian.Uint32(head[1:]))
	if size < lengthBytes {
		return fmt.Errorf("a message of %d bytes", size)
	}
	switch kind {
	case 'C', 'Z': // a command is complete; ready for the next
		whole, err := from.Peek(1 + int(size))
		if err != nil {
			return err
		}
		body := whole[headBytes:]
		if kind == 'Z' {
			err = p.ready(body)
		} else {
			p.complete(body)
		}
		if err != nil {
			return err
		}
	case 'E': // an error
		p.failed = true
	}
	if p.taken != "" { // lost already, as the connection will be
		_, err = from.Discard(1 + int(size))
		return err
	}
	_, err = io.CopyN(to, from, 1+size)
	return err
}

// complete reads the end of a command: this and all that follows is lost if it is
// to be.
func (p *postgresTalk) complete(body []byte) {
	tag, _, _ := bytes.Cut(body, []byte{0})
	verb, _, _ := strings.Cut(string(tag), " ")
	kind := loss("")
	switch verb {
	case "BEGIN":
		p.inside = true
	case "COMMIT":
		p.inside, kind = false, commitAnswer
	case "INSERT", "UPDATE", "DELETE", "MERGE":
		if !p.inside {
			kind = statementAnswer
		}
	}
	if kind != "" && p.taken == "" && p.losses.take(kind) {
		p.taken = kind
	}
}

// ready reads the end of a round trip: only now all of it is committed.
func (p *postgresTalk) ready(status []byte) error {
	idle := len(status) == 1 && status[0] == 'I'
	if p.taken != "" {
		if !idle || p.failed {
			p.losses.giveBack(p.taken)
		}
		return errLost
	}
	p.inside, p.failed = !idle, false
	return nil
}
