package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/payment"
)

// LogConfig says what is logged and how.
type LogConfig struct {
	// Level is debug, info, warn or error. Defaults to info.
	Level string
	// Format is json, one object per line, or console, for people. Defaults to json.
	Format string
	// Color lets the console format use colours. Defaults to false.
	Color bool
}

// NewLogger returns a logger whose lines carry a time in UTC with nanoseconds
// and are masked: card-like numbers and tokens never reach w. It changes no
// global of the library.
func NewLogger(w io.Writer, cfg LogConfig) (zerolog.Logger, error) {
	level := zerolog.InfoLevel
	if cfg.Level != "" {
		var err error
		if level, err = zerolog.ParseLevel(cfg.Level); err != nil {
			return zerolog.Nop(), fmt.Errorf("log level %q is not known: use debug, info, warn or error", cfg.Level)
		}
	}
	out := w
	if cfg.Format == "console" {
		out = zerolog.ConsoleWriter{
			Out: w, NoColor: !cfg.Color, FormatTimestamp: consoleTime, FormatCaller: consoleCaller,
			PartsOrder: []string{zerolog.TimestampFieldName, zerolog.LevelFieldName, zerolog.MessageFieldName, zerolog.CallerFieldName},
		}
	}
	return zerolog.New(zerolog.SyncWriter(maskingWriter{out})).Level(level).Hook(zerolog.HookFunc(stamp)), nil
}

// stamp writes the time itself: the library's own way depends on a global.
func stamp(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format(time.RFC3339Nano))
}

// consoleCaller shows the upstream service: the library takes the field of this
// name for a place in the source.
func consoleCaller(v any) string {
	if name, ok := v.(string); ok && name != "" {
		return "caller=" + name
	}
	return ""
}

// consoleTime leaves out the date, which a person at a terminal knows.
func consoleTime(v any) string {
	text, _ := v.(string)
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return t.Format("15:04:05.000")
}

// maskingWriter masks the strings of a JSON line. Numbers stay as they are:
// they are ours (offsets, tokens of leases), and a masked one is not JSON.
type maskingWriter struct{ out io.Writer }

// Write masks one line and passes it on. It reports the length it was given.
func (m maskingWriter) Write(line []byte) (int, error) {
	if _, err := m.out.Write(maskLine(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// maskLine returns line itself where there is nothing to mask, which is nearly
// always.
func maskLine(line []byte) []byte {
	var masked []byte
	done := 0
	for start := 0; start < len(line); {
		from, to, ok := nextString(line, start)
		if !ok {
			break
		}
		if text, changed := maskQuoted(line[from:to]); changed {
			masked = append(append(masked, line[done:from]...), text...)
			done = to
		}
		start = to
	}
	if masked == nil {
		return line
	}
	return append(masked, line[done:]...)
}

// nextString finds the next quoted string at or after start, quotes included.
func nextString(line []byte, start int) (from, to int, ok bool) {
	i := bytes.IndexByte(line[start:], '"')
	if i < 0 {
		return 0, 0, false
	}
	from = start + i
	for to = from + 1; to < len(line); to++ {
		switch line[to] {
		case '\\':
			to++
		case '"':
			return from, to + 1, true
		}
	}
	return 0, 0, false
}

// maskQuoted masks the inside of a JSON string. Ids are left alone: a UUID may
// hold a run of digits that looks like a card.
func maskQuoted(quoted []byte) ([]byte, bool) {
	inside := string(quoted[1 : len(quoted)-1])
	if isUUID(inside) || isTime(inside) {
		return nil, false
	}
	masked := payment.Mask(inside)
	if masked == inside {
		return nil, false
	}
	return []byte(`"` + masked + `"`), true
}

func isUUID(s string) bool {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	for i := range len(s) {
		hex := s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'f'
		if !hex && s[i] != '-' {
			return false
		}
	}
	return true
}

func isTime(s string) bool {
	if len(s) < len("2006-01-02T15:04:05Z") || s[4] != '-' || s[10] != 'T' {
		return false
	}
	_, err := strconv.Atoi(s[:4])
	return err == nil
}
