package wire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const benchAnswer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\nContent-Length: 2\r\n\r\nok"

// blindly answers whatever comes in one read, so that a benchmark measures the client.
func blindly(c *peerConn) {
	buf := make([]byte, 4096)
	for {
		if n, err := c.Read(buf); err != nil || n == 0 {
			return
		}
		c.say(benchAnswer)
	}
}

// parallel runs f from many goroutines and reports the CPU time of a call, which
// a busy machine disturbs less than its duration.
func parallel(b *testing.B, f func() error) {
	b.Helper()
	b.ReportAllocs()
	b.SetParallelism(64)
	start := cpu(b)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := f(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(cpu(b)-start)/float64(b.N)/float64(time.Microsecond), "cpu-µs/op")
}

func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func BenchmarkDo(b *testing.B) {
	p := serve(b, blindly)
	parallel(b, func() error { return post(p.client, timeout).Err })
}

// BenchmarkNetHTTP is what Do has to beat: the same call by net/http.
func BenchmarkNetHTTP(b *testing.B) {
	p := serve(b, blindly)
	transport := &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	url := "http://" + p.listener.Addr().String() + "/charge"
	parallel(b, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte("body")))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.ReadAll(resp.Body)
		return errors.Join(err, resp.Body.Close())
	})
}
