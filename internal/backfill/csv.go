package backfill

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// csvPage is how many rows are read at once.
const csvPage = 1000

// CSV reads a file whose first row names the columns.
type CSV struct {
	file    *os.File
	reader  *csv.Reader
	columns []string
	content string
	total   int64
	row     int64
}

var _ Source = (*CSV)(nil)

// OpenCSV opens a file of comma-separated values, or of another delimiter. It
// reads it once to know it again.
func OpenCSV(path string, delimiter rune) (*CSV, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, inputf("the file cannot be read: %w", err)
	}
	s := &CSV{file: file}
	if err := s.open(delimiter); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

func (s *CSV) open(delimiter rune) error {
	if err := s.fingerprint(); err != nil {
		return err
	}
	buffered := bufio.NewReaderSize(s.file, 1<<16)
	if mark, err := buffered.Peek(3); err == nil && bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = buffered.Discard(len(mark)) // a byte order mark is no part of the first name
	}
	s.reader = csv.NewReader(buffered)
	s.reader.Comma, s.reader.ReuseRecord = delimiter, false
	header, err := s.reader.Read()
	switch {
	case errors.Is(err, io.EOF):
		return inputf("the file %s is empty: its first row must name the columns", s.file.Name())
	case err != nil:
		return inputf("the first row of %s cannot be read: %w", s.file.Name(), err)
	}
	s.columns = header
	return nil
}

// fingerprint hashes the file and counts its lines.
func (s *CSV) fingerprint() error {
	hash, lines := sha256.New(), lineCounter{}
	if _, err := io.Copy(io.MultiWriter(hash, &lines), s.file); err != nil {
		return inputf("the file cannot be read: %w", err)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return inputf("the file cannot be read twice, so it must be a plain one: %w", err)
	}
	s.content, s.total = "csv:"+hex.EncodeToString(hash.Sum(nil)), max(lines.count()-1, 0)
	return nil
}

// lineCounter counts lines, the last one also without its end.
type lineCounter struct {
	n    int64
	open bool
}

// Write implements io.Writer.
func (c *lineCounter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		c.n += int64(bytes.Count(p, []byte("\n")))
		c.open = p[len(p)-1] != '\n'
	}
	return len(p), nil
}

func (c *lineCounter) count() int64 {
	if c.open {
		return c.n + 1
	}
	return c.n
}

// Columns implements Source.
func (s *CSV) Columns() []string { return s.columns }

// Content implements Source.
func (s *CSV) Content() string { return s.content }

// Total implements Source. A value with a line break counts as two rows.
func (s *CSV) Total() int64 { return s.total }

// Skip implements Source.
func (s *CSV) Skip(ctx context.Context, position string, _ int64) error {
	row, err := strconv.ParseInt(position, 10, 64)
	if err != nil {
		return fmt.Errorf("read the position: %w", err)
	}
	for s.row < row {
		if _, err := s.next(); err != nil {
			return fmt.Errorf("go on after row %d: %w", row, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Next implements Source.
func (s *CSV) Next(context.Context) ([]Record, error) {
	page := make([]Record, 0, csvPage)
	for len(page) < csvPage {
		record, err := s.next()
		if errors.Is(err, io.EOF) && len(page) > 0 {
			return page, nil
		}
		if err != nil {
			return nil, err
		}
		page = append(page, record)
	}
	return page, nil
}

// next reads one row. One of another length is broken alone; after a misplaced
// quote nobody knows where the next row begins.
func (s *CSV) next() (Record, error) {
	fields, err := s.reader.Read()
	if errors.Is(err, io.EOF) {
		return Record{}, io.EOF
	}
	s.row++
	record := Record{Row: s.row, Position: strconv.FormatInt(s.row, 10), Fields: fields}
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		record.Broken = fmt.Sprintf("has %d values and the first row names %d columns", len(fields), len(s.columns))
	case err != nil:
		return Record{}, inputf("the file %s is no CSV from row %d on, correct it and run again: %w", s.file.Name(), s.row, err)
	}
	return record, nil
}

// Close implements Source.
func (s *CSV) Close(context.Context) error {
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("close the file: %w", err)
	}
	return nil
}
