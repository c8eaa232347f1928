package kafka

import (
	"errors"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
)

const (
	// coordinatorPatience is how long a cluster may take to make the group
	// coordinator, which a fresh one does when the first group asks.
	coordinatorPatience = 30 * time.Second
	// warnEvery is how often a lasting failure is worth a warning.
	warnEvery = time.Minute
)

// joinLog says now and then that joining a group fails; the attempts in between
// are for those who debug. The zero value, with a logger, begins an outage.
type joinLog struct {
	log   zerolog.Logger
	quiet time.Time // no warning before
}

func (j *joinLog) add(now time.Time, err error, message string) {
	if j.quiet.IsZero() && errors.Is(err, kafkago.GroupCoordinatorNotAvailable) {
		j.quiet = now.Add(coordinatorPatience)
	}
	level := zerolog.DebugLevel
	if !now.Before(j.quiet) {
		level, j.quiet = zerolog.WarnLevel, now.Add(warnEvery)
	}
	j.log.WithLevel(level).Err(err).Msg(message)
}
