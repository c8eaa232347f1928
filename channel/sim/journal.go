package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// journal is the ledger's file: one JSON line per fact, appended with write(2)
// before the answer leaves. It is not synced: it survives the death of the
// process, not that of the machine.
type journal struct {
	mu     sync.Mutex
	file   *os.File // nil: nothing is kept
	buf    []byte
	broken error
}

// openJournal opens or creates the file, feeds its lines to apply and cuts off a
// last line that was not written to its end. An empty path keeps nothing.
func openJournal(path string, apply func(*line)) (*journal, error) {
	if path == "" {
		return &journal{}, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	whole, err := replay(file, apply)
	if err == nil {
		err = file.Truncate(whole)
	}
	if err == nil {
		_, err = file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read ledger %s: %w", path, err), file.Close())
	}
	return &journal{file: file}, nil
}

// replay applies every whole line and returns the length they have together. Only
// the last line may be torn; damage before it is an error, since counts would lie.
func replay(file io.Reader, apply func(*line)) (int64, error) {
	in := bufio.NewReaderSize(file, 1<<20)
	var whole int64
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return whole, nil // what is left has no end
		}
		if err != nil {
			return 0, err
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return 0, fmt.Errorf("line %d: %w", n, err)
		}
		apply(&l)
		whole += int64(len(text))
	}
}

// append writes one line. After a failed write the file may end in half a line,
// so every later append fails too.
func (j *journal) append(l *line) error {
	if j.file == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	j.buf = append(l.appendJSON(j.buf[:0]), '\n')
	if _, err := j.file.Write(j.buf); err != nil {
		j.broken = fmt.Errorf("write ledger: %w", err)
	}
	return j.broken
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = errors.New("the ledger is closed")
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}
