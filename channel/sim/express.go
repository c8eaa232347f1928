package sim

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// express serves the one request that counts, an ordinary charge without faults,
// straight from its connection: that takes half of the CPU of net/http, which
// benchmarks take from the workers on the same machine. It looks at a request
// without taking it; whatever is not ordinary is left on the connection, and the
// connection goes to net/http for good. It reports whether that is so.
func (s *Server) express(conn net.Conn, in *bufio.Reader) bool {
	var out []byte
	for {
		order, ordinary, err := s.nextOrder(in)
		if err != nil {
			return false
		}
		if !ordinary {
			return true
		}
		out = s.charge(order).appendHTTP(out[:0])
		if len(out) == 0 { // stopping: nothing to say
			return false
		}
		if _, err := conn.Write(out); err != nil {
			return false
		}
	}
}

// order is an ordinary charge as it was read.
type order struct {
	key     uuid.UUID
	content Content
}

// nextOrder waits for a request and takes it if it is an ordinary charge.
func (s *Server) nextOrder(in *bufio.Reader) (order, bool, error) {
	head, whole, err := peekHead(in)
	if err != nil || !whole {
		return order{}, false, err
	}
	key, length, ok := readHead(head)
	if !ok || len(head)+length > in.Size() {
		return order{}, false, nil
	}
	size := len(head) + length
	request, err := in.Peek(size)
	if err != nil {
		return order{}, false, err
	}
	o := order{key: key}
	ok = o.content.readPlain(request[size-length:]) && o.content.Amount > 0 && o.content.Currency != ""
	if !ok || o.content.Metadata[metadataKey] != "" || !s.calm() {
		return order{}, false, nil
	}
	_, err = in.Discard(size)
	return o, true, err
}

// calm reports that no fault can strike a charge that does not ask for one.
func (s *Server) calm() bool {
	b := &s.live.Load().Behaviour
	return s.rules.count.Load() == 0 && len(b.Rates) == 0 && !b.AmountFaults
}

// charge is postCharge for an order.
func (s *Server) charge(o order) reply {
	s.requests.Add(1)
	inFlight := s.enter()
	defer s.inFlight.Add(-1)
	sub := &submit{key: o.key, content: o.content, rules: s.live.Load()}
	sub.send = s.books.arrive(o.key, &sub.content, time.Now())
	return s.take(context.Background(), sub, inFlight)
}

// peekHead returns a request's head, with the empty line at its end, without
// taking it; false when it does not fit the buffer.
func peekHead(in *bufio.Reader) ([]byte, bool, error) {
	for need := 1; ; need = in.Buffered() + 1 {
		if need > in.Size() {
			return nil, false, nil
		}
		if _, err := in.Peek(need); err != nil {
			return nil, false, err
		}
		buffered, err := in.Peek(in.Buffered())
		if err != nil {
			return nil, false, err
		}
		if end := bytes.Index(buffered, []byte("\r\n\r\n")); end >= 0 {
			return buffered[:end+4], true, nil
		}
	}
}

// readHead reads the provider key and the length of the body of an ordinary
// charge; false for every other request, and where a header changes how the
// message is to be read.
func readHead(head []byte) (uuid.UUID, int, bool) {
	lines, ok := bytes.CutPrefix(head, []byte("POST /v1/charges HTTP/1.1\r\n"))
	if !ok {
		return uuid.Nil, 0, false
	}
	var key, length []byte
	for len(lines) > 2 {
		var line []byte
		line, lines, _ = bytes.Cut(lines, []byte("\r\n"))
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return uuid.Nil, 0, false
		}
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte(KeyHeader)) && key == nil:
			key = value
		case bytes.EqualFold(name, []byte("Content-Length")) && length == nil:
			length = value
		case !harmless(name):
			return uuid.Nil, 0, false
		}
	}
	id, err := uuid.ParseBytes(key)
	if err != nil || len(key) != len(id.String()) || len(length) == 0 || len(length) > 4 {
		return uuid.Nil, 0, false
	}
	n, err := strconv.ParseUint(string(length), 10, 16)
	return id, int(n), err == nil
}

// harmless reports whether a header says nothing about how to read or answer.
func harmless(name []byte) bool {
	for _, known := range []string{"Host", "Content-Type", "User-Agent", "Accept", "Accept-Encoding", "Traceparent"} {
		if len(name) == len(known) && bytes.EqualFold(name, []byte(known)) {
			return true
		}
	}
	return false
}

// appendHTTP writes the reply as a message; nothing for one that hangs up.
func (r reply) appendHTTP(out []byte) []byte {
	if r.hangUp {
		return out
	}
	var body [512]byte
	text := r.body.appendJSON(body[:0])
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(r.status), 10)
	out = append(out, ' ')
	out = append(out, http.StatusText(r.status)...)
	out = append(out, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	out = strconv.AppendInt(out, int64(len(text)), 10)
	if r.retryAfter > 0 {
		out = append(out, "\r\nRetry-After: "...)
		out = strconv.AppendInt(out, int64(r.retryAfter), 10)
	}
	out = append(out, "\r\n\r\n"...)
	return append(out, text...)
}
