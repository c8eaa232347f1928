package torture

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// newKafkaProxy makes a proxy that leads to all brokers: where an answer names
// one, it puts its own address there. It loses what losses want.
func newKafkaProxy(l *losses) *proxy {
	var p *proxy
	p = newTalkingProxy(func() dialogue {
		return &kafkaTalk{proxy: p, losses: l, asked: map[int32]kafkaRequest{}}
	})
	return p
}

// kafkaTalk passes the requests and answers of one connection on.
type kafkaTalk struct {
	proxy  *proxy
	losses *losses

	mu    sync.Mutex
	asked map[int32]kafkaRequest // by correlation id
}

// kafkaRequest says what an answer is to be read as.
type kafkaRequest struct{ key, version int16 }

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
	k.asked[id] = kafkaRequest{key, version}
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
	kind, mayBeLost := losable[request.key]
	switch {
	case known && mayBeLost && k.losses.wanted(kind):
		return k.lose(kind, request, from, to, size)
	case known && namesBrokers[request.key]:
		return k.rename(request, from, to, size)
	default:
		_, err = io.CopyN(to, from, sizeBytes+size)
		return err
	}
}

var (
	// losable are the requests whose answers are lost.
	losable = map[int16]loss{kmsg.Produce.Int16(): produceAnswer, kmsg.OffsetCommit.Int16(): offsetAnswer}
	// namesBrokers are the requests whose answers name brokers by their addresses.
	namesBrokers = map[int16]bool{kmsg.Metadata.Int16(): true, kmsg.FindCoordinator.Int16(): true, kmsg.DescribeCluster.Int16(): true}
)

// lose loses the answer, if it says that the request was applied.
func (k *kafkaTalk) lose(kind loss, request kafkaRequest, from *bufio.Reader, to *bufio.Writer, size int64) error {
	frame := make([]byte, sizeBytes+size)
	if _, err := io.ReadFull(from, frame); err != nil {
		return err
	}
	answer, err := readAnswer(request, frame[sizeBytes+answerHeaderBytes:])
	if err != nil {
		return err
	}
	if applied(answer) && k.losses.take(kind) {
		return errLost
	}
	_, err = to.Write(frame)
	return err
}

// applied reports whether an answer says that everything was done.
func applied(answer kmsg.Response) bool {
	done := 0
	switch a := answer.(type) {
	case *kmsg.ProduceResponse:
		for i := range a.Topics {
			for j := range a.Topics[i].Partitions {
				if a.Topics[i].Partitions[j].ErrorCode != 0 {
					return false
				}
				done++
			}
		}
	case *kmsg.OffsetCommitResponse:
		for i := range a.Topics {
			for j := range a.Topics[i].Partitions {
				if a.Topics[i].Partitions[j].ErrorCode != 0 {
					return false
				}
				done++
			}
		}
	}
	return done > 0
}

// rename puts the proxy's addresses into an answer.
func (k *kafkaTalk) rename(request kafkaRequest, from *bufio.Reader, to *bufio.Writer, size int64) error {
	frame := make([]byte, sizeBytes+size)
	if _, err := io.ReadFull(from, frame); err != nil {
		return err
	}
	answer, err := readAnswer(request, frame[sizeBytes+answerHeaderBytes:])
	if err != nil {
		return err
	}
	if err := k.renameIn(answer); err != nil {
		return err
	}
	out := frame[: sizeBytes+answerHeaderBytes : sizeBytes+answerHeaderBytes]
	if answer.IsFlexible() {
		out = append(out, 0) // no tagged fields in the header
	}
	out = answer.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-sizeBytes)) //nolint:gosec // as small as it came
	_, err = to.Write(out)
	return err
}

func (k *kafkaTalk) renameIn(answer kmsg.Response) error {
	var errs []error
	switch a := answer.(type) {
	case *kmsg.MetadataResponse:
		for i := range a.Brokers {
			errs = append(errs, k.renameBroker(&a.Brokers[i].Host, &a.Brokers[i].Port))
		}
	case *kmsg.FindCoordinatorResponse:
		errs = append(errs, k.renameBroker(&a.Host, &a.Port))
		for i := range a.Coordinators {
			errs = append(errs, k.renameBroker(&a.Coordinators[i].Host, &a.Coordinators[i].Port))
		}
	case *kmsg.DescribeClusterResponse:
		for i := range a.Brokers {
			errs = append(errs, k.renameBroker(&a.Brokers[i].Host, &a.Brokers[i].Port))
		}
	}
	return errors.Join(errs...)
}

// renameBroker leaves the answer alone that knows no broker.
func (k *kafkaTalk) renameBroker(host *string, port *int32) error {
	if *host == "" || *port <= 0 {
		return nil
	}
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

// readAnswer reads an answer from behind its correlation id.
func readAnswer(request kafkaRequest, body []byte) (kmsg.Response, error) {
	answer := kmsg.ResponseForKey(request.key)
	answer.SetVersion(request.version)
	if answer.IsFlexible() {
		var err error
		if body, err = skipTags(body); err != nil {
			return nil, err
		}
	}
	if err := answer.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("read an answer to request %d, version %d: %w", request.key, request.version, err)
	}
	return answer, nil
}

// skipTags skips the tagged fields of a header.
func skipTags(body []byte) ([]byte, error) {
	number := func() uint64 {
		n, size := binary.Uvarint(body)
		body = body[max(0, size):]
		return n
	}
	for n := number(); n > 0; n-- {
		_ = number() // the tag
		size := number()
		if size > uint64(len(body)) {
			return nil, errors.New("tagged fields that do not end")
		}
		body = body[size:]
	}
	return body, nil
}
