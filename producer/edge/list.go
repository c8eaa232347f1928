package edge

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

const (
	defaultLimit = 20
	maxLimit     = 100
)

// listView is a page of payments, the latest first.
type listView struct {
	Payments []*Payment `json:"payments"`
	// Next is the cursor of the next page; there is none after the last.
	Next string `json:"next,omitempty"`
}

// list shows the caller's payments of an order: GET /v1/payments?order=….
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	query, problem := orderQuery(r)
	if problem != nil {
		writeProblem(w, r, problem)
		return
	}
	limit := query.Limit
	query.Limit++ // one more tells whether there is a next page
	found, err := s.cfg.Reader.PaymentsOfOrder(r.Context(), query)
	if err != nil {
		writeProblem(w, r, s.unavailable(r, err))
		return
	}
	var page listView
	if len(found) > limit {
		found = found[:limit]
		last := &found[limit-1]
		page.Next = cursorOf(store.Mark{At: last.CreatedAt, ID: last.ID})
	}
	page.Payments = make([]*Payment, len(found))
	for i := range found {
		page.Payments[i] = viewOf(&found[i])
	}
	writeJSON(w, http.StatusOK, page)
}

// orderQuery reads the parameters. One that is not known is refused: a misspelled
// cursor would start from the beginning for ever.
func orderQuery(r *http.Request) (store.OrderQuery, *Problem) {
	caller := &callOf(r.Context()).caller
	q := store.OrderQuery{Caller: caller.Name, Namespaces: []string{caller.Name}, Limit: defaultLimit}
	if caller.Namespace != "" {
		q.Namespaces = append(q.Namespaces, caller.Namespace)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, invalidQuery("", "write the query as name=value, percent-encoded")
	}
	for name, given := range values {
		if len(given) != 1 {
			return q, invalidQuery("", "give each parameter once")
		}
		if problem := takeParameter(&q, name, given[0]); problem != nil {
			return q, problem
		}
	}
	if q.OrderID == "" {
		return q, invalidQuery("order", "is missing: name the order")
	}
	return q, nil
}

func takeParameter(q *store.OrderQuery, name, value string) *Problem {
	var ok bool
	switch name {
	case "order":
		q.OrderID = value
		if !isOrder(value) {
			return invalidQuery(name, "must be 1 to 128 characters without control characters")
		}
	case "limit":
		var err error
		if q.Limit, err = strconv.Atoi(value); err != nil || q.Limit < 1 || q.Limit > maxLimit {
			return invalidQuery(name, "must be 1 to 100")
		}
	case "cursor":
		if q.Before, ok = parseCursor(value); !ok {
			return invalidQuery(name, "must be the next of an earlier page")
		}
	default:
		return invalidQuery("", "has a parameter that is not known: use order, limit and cursor")
	}
	return nil
}

func invalidQuery(field, detail string) *Problem {
	problem := problemOf(CodeInvalidQuery, detail)
	problem.Field = field
	return problem
}

func isOrder(text string) bool {
	return text != "" && utf8.ValidString(text) && utf8.RuneCountInString(text) <= payment.MaxTextLength &&
		!strings.ContainsFunc(text, unicode.IsControl)
}

// cursorBytes is a time in microseconds and a payment's id.
const cursorBytes = 8 + 16

// cursorOf is opaque to clients, and tells nothing that the page did not.
func cursorOf(m store.Mark) string {
	raw := binary.BigEndian.AppendUint64(make([]byte, 0, cursorBytes), uint64(m.At.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(raw, m.ID[:]...))
}

func parseCursor(text string) (store.Mark, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != cursorBytes {
		return store.Mark{}, false
	}
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(raw))).UTC() //nolint:gosec // checked below
	return store.Mark{At: at, ID: uuid.UUID(raw[8:])}, at.Year() >= 1970 && at.Year() < 3000
}
