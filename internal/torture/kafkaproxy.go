package torture

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/settleonce/settleonce/internal/devstack/kafkawire"
)

// newKafkaProxy makes a proxy that leads to all brokers: where an answer names
// one, it puts its own address there. It loses what losses want.
func newKafkaProxy(l *losses) *proxy {
	var p *proxy
	p = newTalkingProxy(func() dialogue {
		return &kafkaTalk{proxy: p, losses: l, asked: map[int32]kafkawire.Request{}}
	})
	return p
}

// kafkaTalk passes the requests and answers of one connection on.
type kafkaTalk struct {
	proxy  *proxy
	losses *losses

	mu    sync.Mutex
	asked map[int32]kafkawire.Request // by correlation id
}

// The sizes of what precedes requests and answers.
const (
	sizeBytes          = 4
	requestHeaderBytes = 8 // key, version, correlation id
	answerHeaderBytes  = 4 // correlation id
)

// up implements dialogue.
func (k *kafkaTalk) up(from *bufio.Reader, to *bufio.Writer) error {
	head, err := from.Peek(sizeBytes + requestHeaderBytes)
	if err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(head))
	if size < requestHeaderBytes {
		return fmt.Errorf("a request of %d bytes", size)
	}
	//nolint:gosec // two's complement copies
	key, version, id := int16(binary.BigEndian.Uint16(head[4:])), int16(binary.BigEndian.Uint16(head[6:])), int32(binary.BigEndian.Uint32(head[8:]))
	k.mu.Lock()
	k.asked[id] = kafkawire.Request{Key: key, Version: version}
	k.mu.Unlock()
	_, err = io.CopyN(to, from, sizeBytes+size)
	return err
}

// down implements dialogue.
func (k *kafkaTalk) down(from *bufio.Reader, to *bufio.Writer) error {
	head, err := from.Peek(sizeBytes + answerHeaderBytes)
	if err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(head))
	if size < answerHeaderBytes {
		return fmt.Errorf("an answer of %d bytes", size)
	}
	id := int32(binary.BigEndian.Uint32(head[sizeBytes:])) //nolint:gosec // a two's complement copy
	k.mu.Lock()
	request, known := k.asked[id]
	delete(k.asked, id)
	k.mu.Unlock()
	switch {
	case known && request.Produces() && k.losses.wanted(produceAnswer):
		return k.lose(produceAnswer, request, from, to, size)
	case known && request.CommitsOffsets() && k.losses.wanted(offsetAnswer):
		return k.lose(offsetAnswer, request, from, to, size)
	case known && request.NamesBrokers():
		return k.rename(request, from, to, size)
	default:
		_, err = io.CopyN(to, from, sizeBytes+size)
		return err
	}
}

// lose loses the answer, if it says that the request was applied.
func (k *kafkaTalk) lose(kind loss, request kafkawire.Request, from *bufio.Reader, to *bufio.Writer, size int64) error {
	frame := make([]byte, sizeBytes+size)
	if _, err := io.ReadFull(from, frame); err != nil {
		return err
	}
	applied, err := kafkawire.Applied(request, frame[sizeBytes+answerHeaderBytes:])
	if err != nil {
		return err
	}
	if applied && k.losses.take(kind) {
		return errLost
	}
	_, err = to.Write(frame)
	return err
}

// rename puts the proxy's addresses into an answer.
func (k *kafkaTalk) rename(request kafkawire.Request, from *bufio.Reader, to *bufio.Writer, size int64) error {
	frame := make([]byte, sizeBytes+size)
	if _, err := io.ReadFull(from, frame); err != nil {
		return err
	}
	body, err := kafkawire.Rename(request, frame[sizeBytes+answerHeaderBytes:], k.renameBroker)
	if err != nil {
		return err
	}
	out := slices.Concat(frame[:sizeBytes+answerHeaderBytes], body)
	binary.BigEndian.PutUint32(out, uint32(len(out)-sizeBytes)) //nolint:gosec // about as small as it came
	_, err = to.Write(out)
	return err
}

func (k *kafkaTalk) renameBroker(host *string, port *int32) error {
	address, err := k.proxy.via(context.Background(), net.JoinHostPort(*host, strconv.Itoa(int(*port))))
	if err != nil {
		return err
	}
	own, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(text, 10, 32)
	*host, *port = own, int32(number)
	return err
}
