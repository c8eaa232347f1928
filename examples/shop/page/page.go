// Package page is the shop's front: customers order over HTTP, and people look at
// orders, stock and jobs live.
package page

import (
	"context"
	_ "embed" // for page.html
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/examples/shop/order"
)

//go:embed page.html
var page []byte

// price of one unit of anything, in minor units.
const price = 1999

// Front serves customers and onlookers.
type Front struct {
	Desk *order.Desk
	Pool *pgxpool.Pool
	Log  zerolog.Logger
}

// Handler returns the front's routes.
func (f *Front) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /state", f.state)
	mux.HandleFunc("GET /live", f.live)
	mux.HandleFunc("POST /orders", f.place)
	mux.HandleFunc("POST /orders/{id}/pay", f.payAgain)
	mux.HandleFunc("POST /orders/{id}/cancel", f.giveUp)
	return mux
}

// Serve serves the front at the address until ctx ends.
func (f *Front) Serve(ctx context.Context, address string) error {
	server := &http.Server{Addr: address, Handler: f.Handler(), ReadHeaderTimeout: 5 * time.Second}
	// Onlookers would otherwise keep the server open for ever.
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the shop's page: %w", err)
	}
	return nil
}

// maxBody bounds what a customer may send.
const maxBody = 4 << 10

func (f *Front) place(w http.ResponseWriter, r *http.Request) {
	var o order.Order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&o); err != nil || o.Quantity < 1 || o.SKU == "" {
		http.Error(w, `send {"sku":"mug","quantity":1,"customer":"cust-1","paymentMethod":"tok_visa"}`, http.StatusBadRequest)
		return
	}
	// The client's id makes a repeated request the same order.
	if o.ID == "" {
		o.ID = "order-" + uuid.NewString()
	}
	o.Amount, o.Currency = int64(o.Quantity)*price, "EUR"
	key, err := f.Desk.Place(r.Context(), o)
	f.answer(w, o.ID, key, err)
}

func (f *Front) payAgain(w http.ResponseWriter, r *http.Request) {
	var o order.Order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&o); err != nil || o.PaymentMethod == "" {
		http.Error(w, `send {"paymentMethod":"tok_visa"}`, http.StatusBadRequest)
		return
	}
	key, err := f.Desk.PayAgain(r.Context(), r.PathValue("id"), o.PaymentMethod)
	f.answer(w, r.PathValue("id"), key, err)
}

func (f *Front) giveUp(w http.ResponseWriter, r *http.Request) {
	f.answer(w, r.PathValue("id"), uuid.Nil, f.Desk.GiveUp(r.Context(), r.PathValue("id")))
}

func (f *Front) answer(w http.ResponseWriter, id string, key uuid.UUID, err error) {
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]string{"order": id, "idempotencyKey": key.String()}) //nolint:errchkjson // the client has gone, or it works
	case errors.Is(err, order.ErrSoldOut), errors.Is(err, order.ErrNotOpen):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, order.ErrNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		f.Log.Warn().Err(err).Str("order", id).Msg("request failed")
		http.Error(w, "try again", http.StatusServiceUnavailable)
	}
}

func (f *Front) state(w http.ResponseWriter, r *http.Request) {
	s, err := Look(r.Context(), f.Pool)
	if err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) //nolint:errchkjson // the client has gone, or it works
}

// live sends the state as server-sent events, twice a second.
func (f *Front) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	const every = 500 * time.Millisecond
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	out := http.NewResponseController(w)
	for {
		if s, err := Look(r.Context(), f.Pool); err == nil {
			data, err := json.Marshal(s)
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil || out.Flush() != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}
