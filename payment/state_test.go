package payment_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/payment"
)

func states() []payment.State {
	return []payment.State{
		payment.Pending, payment.Unknown, payment.Review, payment.Succeeded, payment.Declined, payment.Rejected,
	}
}

// The numbers are stored: a renumbered state would turn declined into succeeded.
func TestStateNumbersAndNames(t *testing.T) {
	t.Parallel()
	for number, name := range map[payment.State]string{
		1: "pending", 2: "unknown", 3: "review", 4: "succeeded", 5: "declined", 6: "rejected",
	} {
		require.Equal(t, name, number.String())
		text, err := number.MarshalText()
		require.NoError(t, err)
		var back payment.State
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, number, back)
	}
	for _, number := range []payment.State{0, 7, -1} {
		_, err := number.MarshalText()
		require.Error(t, err)
		require.Contains(t, number.String(), "state(")
	}
	var s payment.State
	require.Error(t, json.Unmarshal([]byte(`"failed"`), &s))
	require.Error(t, json.Unmarshal([]byte(`"Succeeded"`), &s))
}

func TestStateIsEitherUnresolvedOrTerminal(t *testing.T) {
	t.Parallel()
	for _, s := range states() {
		require.NotEqual(t, s.Terminal(), s.Unresolved(), s.String())
	}
	require.False(t, payment.State(0).Terminal())
	require.False(t, payment.State(0).Unresolved())
}

// G9: nothing leaves a terminal state, whatever number the other one has.
func TestTerminalIsSticky(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.SampledFrom([]payment.State{payment.Succeeded, payment.Declined, payment.Rejected}).Draw(t, "from")
		to := payment.State(rapid.Int16().Draw(t, "to"))
		require.False(t, from.CanBecome(to))
	})
}

// G9 over whole lives: once a walk is terminal it stays where it is; a walk that
// is not terminal can still reach an outcome.
func TestTransitionsOverWholeLives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := payment.State(0)
		var end payment.State
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			next := rapid.SampledFrom(states()).Draw(t, "next")
			if !state.CanBecome(next) {
				continue
			}
			require.Zero(t, end, "left %s", end)
			require.NotEqual(t, state, next, "a transition changes the state")
			state = next
			if state.Terminal() {
				end = state
			}
		}
		if state.Unresolved() {
			require.True(t, state.CanBecome(payment.Succeeded))
			require.True(t, state.CanBecome(payment.Declined))
		}
	})
}

// The table as it is meant, spelled out a second time.
func TestTransitionTable(t *testing.T) {
	t.Parallel()
	allowed := map[[2]payment.State]bool{
		{0, payment.Pending}: true, {0, payment.Rejected}: true, {0, payment.Review}: true,
		{0, payment.Succeeded}: true, {0, payment.Declined}: true,
		{payment.Pending, payment.Unknown}: true, {payment.Pending, payment.Review}: true,
		{payment.Pending, payment.Succeeded}: true, {payment.Pending, payment.Declined}: true,
		{payment.Pending, payment.Rejected}:  true,
		{payment.Unknown, payment.Review}:    true,
		{payment.Unknown, payment.Succeeded}: true, {payment.Unknown, payment.Declined}: true,
		{payment.Review, payment.Succeeded}: true, {payment.Review, payment.Declined}: true,
	}
	all := append(states(), 0, 7)
	for _, from := range all {
		for _, to := range all {
			require.Equal(t, allowed[[2]payment.State{from, to}], from.CanBecome(to), "%s -> %s", from, to)
		}
	}
}

// G2, G3: "rejected" means never sent, so nothing that may have been sent becomes it.
func TestRejectedOnlyBeforeASend(t *testing.T) {
	t.Parallel()
	for _, from := range []payment.State{payment.Unknown, payment.Review, payment.Succeeded, payment.Declined} {
		require.False(t, from.CanBecome(payment.Rejected), from.String())
	}
}
