package producer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Options say how one command is published, beyond its content.
type Options struct {
	// Topic is the full name of the command topic. Defaults to payment.commands
	// under the prefix.
	Topic string
	// Headers stand beside those that every command has, like traceparent.
	Headers map[string]string
}

// Place is where a command is.
type Place struct {
	Topic     string
	Partition int
	// Offset is -1 where the broker did not tell: it had the record already.
	Offset int64
}

// Send is Publish for one command, with options; it tells where the command is.
// The errors are those of Publish.
func (p *Producer) Send(ctx context.Context, cmd payment.Command, opts Options) (Place, error) {
	cmds := []payment.Command{cmd}
	if err := validate(cmds); err != nil {
		return Place{}, err
	}
	message := p.message(&cmd, cmd.AppendJSON(nil))
	message.Topic = cmp.Or(opts.Topic, message.Topic)
	for _, name := range slices.Sorted(maps.Keys(opts.Headers)) {
		message.Headers = append(message.Headers, kafka.Header{Key: name, Value: []byte(opts.Headers[name])})
	}
	places, err := p.publisher.PublishPlaced(ctx, message)
	switch {
	case err == nil:
		return Place{Topic: message.Topic, Partition: places[0].Partition, Offset: places[0].Offset}, nil
	case errors.Is(err, kafka.ErrClosed):
		return Place{}, ErrClosed
	default:
		return Place{}, unknown(cmds, err)
	}
}
