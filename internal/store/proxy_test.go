package store_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/settleonce/settleonce/internal/pgtest"
)

// proxy stands between the store and Postgres and looks for COMMIT.
type proxy struct {
	// onCommit, when set, is asked once, at the next COMMIT, and is then unset.
	onCommit atomic.Pointer[func() fate]
	hits     atomic.Int64
}

// fate is what becomes of a COMMIT.
type fate int

const (
	// goesOn: nothing happens to it.
	goesOn fate = iota
	// neverArrives: the connection is cut before the server sees it.
	neverArrives
	// answerIsLost: the server commits, and the connection is cut before it says so.
	answerIsLost
)

// newProxy returns a proxy to the server of dsn, and a dsn that goes through it.
func newProxy(t *testing.T, dsn string) (*proxy, string) {
	t.Helper()
	p := &proxy{}
	return p, pgtest.Via(t, dsn, func(client, server net.Conn) {
		l := &link{proxy: p, client: client, server: server}
		var asks sync.WaitGroup
		asks.Go(l.toServer)
		l.toClient()
		asks.Wait()
	})
}

// next says what becomes of the next COMMIT.
func (p *proxy) next(f fate) { p.nextDo(func() fate { return f }) }

func (p *proxy) nextDo(do func() fate) { p.onCommit.Store(&do) }

// link is one connection through the proxy.
type link struct {
	proxy          *proxy
	client, server net.Conn
	losing         atomic.Bool // the answer to COMMIT must not pass
}

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// commitName is the name of pgx's prepared statement for "commit".
func commitName() string {
	digest := sha256.Sum256([]byte("commit"))
	return "stmtcache_" + hex.EncodeToString(digest[:24])
}

func (l *link) toServer() {
	defer l.cut()
	bind := "B\x00" + commitName() + "\x00" // to the unnamed portal
	for first := true; ; first = false {
		kind, body, err := frame(l.client, first)
		if err != nil {
			return
		}
		if !first && len(body) > 4+len(bind)-1 && string(kind)+string(body[4:4+len(bind)-1]) == bind && !l.commit() {
			return
		}
		if _, err := l.server.Write(append(kind, body...)); err != nil {
			return
		}
	}
}

// commit asks what becomes of a COMMIT and reports whether to pass it on.
func (l *link) commit() bool {
	do := l.proxy.onCommit.Swap(nil)
	if do == nil {
		return true
	}
	l.proxy.hits.Add(1)
	switch (*do)() {
	case neverArrives:
		return false
	case answerIsLost:
		l.losing.Store(true)
	case goesOn:
	}
	return true
}

func (l *link) toClient() {
	defer l.cut()
	for {
		kind, body, err := frame(l.server, false)
		if err != nil {
			return
		}
		if l.losing.Load() {
			if kind[0] == 'C' && string(body[4:]) == "COMMIT\x00" {
				return
			}
			continue
		}
		if _, err := l.client.Write(append(kind, body...)); err != nil {
			return
		}
	}
}

// frame reads one message of the protocol: its kind (none for the first of a
// connection), and its length with its content.
func frame(r io.Reader, first bool) (kind, body []byte, err error) {
	if !first {
		kind = make([]byte, 1, 64)
		if _, err := io.ReadFull(r, kind); err != nil {
			return nil, nil, err
		}
	}
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > 1<<28 {
		return nil, nil, errors.New("not a message of the protocol")
	}
	body = append(make([]byte, 0, n), size[:]...)
	body = append(body, make([]byte, n-4)...)
	_, err = io.ReadFull(r, body[4:])
	return kind, body, err
}
