package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/fleet"
)

// A channel with lots has its own payments, at their times, and no others; what the
// others do stays as it is without it.
func TestScript_LotsAreApart(t *testing.T) {
	t.Parallel()
	aside := Channel{
		Channel: fleet.Channel{Name: "aside", Promises: map[string]string{"rate-limit": "6"}},
		Lots:    []Lot{{Payments: 10, From: 2 * time.Second, Over: time.Second, Fault: "slow:3s"}, {Payments: 5, From: time.Second}},
	}
	without := write(size{records: 200}, 0, 3, begin, one)
	with := write(size{records: 200}, 0, 3, begin, append([]Channel{aside}, one...))
	require.Equal(t, map[string]float64{"aside": 6}, limits([]Channel{aside, one[0]}))
	orders, faults := map[string]bool{}, 0
	var first, last time.Duration
	for _, d := range with.deliveries {
		if d.command == nil || d.command.Channel != "aside" {
			continue
		}
		orders[d.command.OrderID] = true
		if last = d.at; len(orders) == 1 {
			first = d.at
		}
		if d.command.Metadata["sim"] == "slow:3s" {
			faults++
			require.GreaterOrEqual(t, d.at, 2*time.Second)
		}
	}
	require.Len(t, orders, 15)
	require.Equal(t, 10, faults)
	require.Equal(t, time.Second, first)
	require.Less(t, last, 3*time.Second)
	require.Equal(t, without.records+15, with.records)
	others := with.payments[:0:0]
	for _, p := range with.payments {
		if p.command.Channel != "aside" {
			others = append(others, p)
		}
	}
	require.Equal(t, without.payments, others)
}
