// Package kafkawire reads and rewrites answers of Kafka brokers, for proxies that
// stand between a broker and its clients.
package kafkawire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Request says what an answer is to be read as: the key and the version of its
// request.
type Request struct{ Key, Version int16 }

// Produces reports whether the request publishes records.
func (r Request) Produces() bool { return r.Key == kmsg.Produce.Int16() }

// CommitsOffsets reports whether the request stores a group's offsets.
func (r Request) CommitsOffsets() bool { return r.Key == kmsg.OffsetCommit.Int16() }

// NamesBrokers reports whether the answer holds addresses of brokers.
func (r Request) NamesBrokers() bool {
	return r.Key == kmsg.Metadata.Int16() || r.Key == kmsg.FindCoordinator.Int16() || r.Key == kmsg.DescribeCluster.Int16()
}

// Applied reads the answer of a request that Produces or CommitsOffsets, from behind
// its correlation id, and reports whether it says that everything was done.
func Applied(r Request, body []byte) (bool, error) {
	answer, err := read(r, body)
	if err != nil {
		return false, err
	}
	done := 0
	switch a := answer.(type) {
	case *kmsg.ProduceResponse:
		for i := range a.Topics {
			for j := range a.Topics[i].Partitions {
				if a.Topics[i].Partitions[j].ErrorCode != 0 {
					return false, nil
				}
				done++
			}
		}
	case *kmsg.OffsetCommitResponse:
		for i := range a.Topics {
			for j := range a.Topics[i].Partitions {
				if a.Topics[i].Partitions[j].ErrorCode != 0 {
					return false, nil
				}
				done++
			}
		}
	}
	return done > 0, nil
}

// Rename gives every broker in the answer of a request that NamesBrokers another
// address. The body begins behind the correlation id, as does the result.
func Rename(r Request, body []byte, to func(host *string, port *int32) error) ([]byte, error) {
	answer, err := read(r, body)
	if err != nil {
		return nil, err
	}
	known := func(host *string, port *int32) error {
		if *host == "" || *port <= 0 {
			return nil // the answer knows no broker
		}
		return to(host, port)
	}
	var errs []error
	switch a := answer.(type) {
	case *kmsg.MetadataResponse:
		for i := range a.Brokers {
			errs = append(errs, known(&a.Brokers[i].Host, &a.Brokers[i].Port))
		}
	case *kmsg.FindCoordinatorResponse:
		errs = append(errs, known(&a.Host, &a.Port))
		for i := range a.Coordinators {
			errs = append(errs, known(&a.Coordinators[i].Host, &a.Coordinators[i].Port))
		}
	case *kmsg.DescribeClusterResponse:
		for i := range a.Brokers {
			errs = append(errs, known(&a.Brokers[i].Host, &a.Brokers[i].Port))
		}
	}
	var out []byte
	if answer.IsFlexible() {
		out = append(out, 0) // no tagged fields in the header
	}
	return answer.AppendTo(out), errors.Join(errs...)
}

// read reads an answer from behind its correlation id.
func read(r Request, body []byte) (kmsg.Response, error) {
	answer := kmsg.ResponseForKey(r.Key)
	answer.SetVersion(r.Version)
	if answer.IsFlexible() {
		var err error
		if body, err = skipTags(body); err != nil {
			return nil, err
		}
	}
	if err := answer.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("read an answer to request %d, version %d: %w", r.Key, r.Version, err)
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
