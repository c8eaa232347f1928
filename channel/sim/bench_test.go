package sim_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

// BenchmarkSubmit is adapter and server over loopback, both in this process.
func BenchmarkSubmit(b *testing.B) {
	bench := setupLedger(b, sim.DefaultBehaviour(), filepath.Join(b.TempDir(), "ledger"))
	b.ReportAllocs()
	b.SetParallelism(32)
	defer reportCPU(b, cpu(b))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if answer := bench.submit(request(""), timeout); answer.Class != payment.ClassSucceeded {
				b.Errorf("answered %v: %s", answer.Class, answer.Detail)
				return
			}
		}
	})
}

// BenchmarkNetHTTP is the same charge by net/http's client, as a measure for BenchmarkSubmit.
func BenchmarkNetHTTP(b *testing.B) {
	bench := setupLedger(b, sim.DefaultBehaviour(), filepath.Join(b.TempDir(), "ledger"))
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096}, Timeout: timeout}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	b.SetParallelism(32)
	defer reportCPU(b, cpu(b))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			body := strings.NewReader(`{"amount":1999,"currency":"EUR","customer":"cust-7","method":"tok_visa","order":"order-1001"}`)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, bench.url+"/v1/charges", body)
			if err == nil {
				req.Header.Set(sim.KeyHeader, uuid.NewString())
				var resp *http.Response
				if resp, err = client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
			cancel()
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkInstant is the instant channel.
func BenchmarkInstant(b *testing.B) {
	instant := sim.NewInstant()
	r := request("")
	b.ReportAllocs()
	for b.Loop() {
		r.ProviderKey = uuid.New()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		instant.Submit(ctx, r)
		cancel()
	}
}

// reportCPU adds the CPU time per call, which a busy machine disturbs less than the duration.
func reportCPU(b *testing.B, start time.Duration) {
	b.Helper()
	b.ReportMetric(float64(cpu(b)-start)/float64(b.N)/float64(time.Microsecond), "cpu-µs/op")
}

func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
