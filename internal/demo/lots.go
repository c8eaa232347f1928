package demo

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Lot is a part of the payments of a channel that takes no others.
type Lot struct {
	// Payments is how many there are. They are delivered at even distances, from From
	// after the start on, over the time Over.
	Payments   int
	From, Over time.Duration
	// Fault is what the channel does to each of them; empty for nothing.
	Fault string
}

// common are the channels that all payments are spread over.
func common(channels []Channel) []Channel {
	return slices.DeleteFunc(slices.Clone(channels), func(c Channel) bool { return len(c.Lots) > 0 })
}

// firstLot numbers the orders of lots, apart from those of stories.
const firstLot = 2_000_000

// lots adds the payments of the channels that have some of their own. They are drawn
// from a random stream of their own, and what the others of a seed do stays as it is.
func (w *writer) lots(channels []Channel) {
	own := &writer{script: w.script, random: rand.New(rand.NewPCG(w.seed, 21)), seed: w.seed, start: w.start, orders: firstLot}
	for i := range channels {
		c := &channels[i]
		own.channels, own.story = []Channel{*c}, "of the channel "+c.Name+" alone"
		for _, l := range c.Lots {
			own.lot(l)
		}
	}
}

func (w *writer) lot(l Lot) {
	for n := range l.Payments {
		p := w.payment(endsCharged, l.Fault)
		w.firstAt(l.From+l.Over*time.Duration(n)/time.Duration(l.Payments), p)
	}
}
