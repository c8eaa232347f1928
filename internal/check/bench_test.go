package check

import (
	"runtime"
	"testing"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

// What a run leaves behind is filed and judged: a third of the payments is
// repeated, a tenth was unknown for a while. It reports memory and time for each
// payment.
func BenchmarkJudge(b *testing.B) {
	w := newWorld(b)
	const payments = 20_000
	for i := range payments {
		c := w.command()
		if i%10 > 0 {
			w.charged(c)
		} else {
			r := w.deliver(c)
			w.ask(c, sim.StatusSettled)
			w.tell(c, payment.EventUnknown, payment.Unknown)
			w.answer(r, c, payment.ReplyOutcome, withOutcome(w.tell(c, payment.EventSucceeded, payment.Succeeded)))
		}
		if i%3 == 0 {
			w.answer(w.deliver(c), c, payment.ReplyPending)
		}
	}
	rules := w.rules()
	rules.Expected = nil
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		e := w.file()
		e.match()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/payments, "B/payment")
		Judge(e, rules)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/payments, "ns/payment")
}
