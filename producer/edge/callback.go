package edge

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
)

// CallbackStore keeps callbacks. StoreCallback returns whether it is new, and an
// error when it is not durable.
type CallbackStore interface {
	StoreCallback(ctx context.Context, c store.Callback) (fresh bool, err error)
}

// CallbackConfig is what the handler of callbacks needs.
type CallbackConfig struct {
	// Channels are the configured channels; those whose adapter is a
	// channel.CallbackVerifier take callbacks. Required.
	Channels *channel.Registry
	// Store keeps what was verified. Required.
	Store CallbackStore
	// MaxBody bounds a callback, in bytes. Defaults to 64 KiB.
	MaxBody int64
	// Timeout bounds storing one. Defaults to 5 s.
	Timeout time.Duration
	// Now is the clock that signatures are compared with. Defaults to time.Now.
	Now     func() time.Time
	Metrics *telemetry.Metrics
	Logger  zerolog.Logger
}

// WithDefaults returns a copy with unset fields set.
func (c CallbackConfig) WithDefaults() CallbackConfig {
	c.MaxBody = cmp.Or(c.MaxBody, 64<<10)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate reports the first setting that must be changed.
func (c CallbackConfig) Validate() error {
	switch {
	case c.Channels == nil || c.Store == nil:
		return errors.New("the handler of callbacks needs channels and a store")
	case c.MaxBody < 1024:
		return errors.New("set the largest callback to at least 1024 bytes")
	case c.Timeout < 0:
		return errors.New("set the time to store a callback to a positive duration")
	}
	return nil
}

// callbackHandler serves POST /v1/callbacks/{channel}.
type callbackHandler struct{ cfg CallbackConfig }

// NewCallbackHandler returns the handler that providers call. The channel is the
// path value "channel". A callback is answered 2xx once it is verified and stored
// (P11), or was stored before (P12); everything else is another status, so that
// the provider sends it again. It decides nothing and needs no Kafka.
func NewCallbackHandler(cfg CallbackConfig) (http.Handler, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &callbackHandler{cfg}, nil
}

// CallbackReceipt is the body of the answer to a callback that was taken.
type CallbackReceipt struct {
	// Result is "stored", or "duplicate" for one that was stored before.
	Result telemetry.CallbackOutcome `json:"result"`
}

// ServeHTTP takes one callback.
func (h *callbackHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("channel")
	entry, known := h.cfg.Channels.Get(name)
	verifier, offered := entry.Adapter.(channel.CallbackVerifier)
	if !known || !offered {
		h.refuse(w, r, "", telemetry.CallbackUnknownChannel, problemOf(CodeNotFound, "no channel of this name takes callbacks"))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		h.refuse(w, r, name, telemetry.CallbackTooLarge, problemOf(CodeBodyTooLarge, "a callback of this size is none of ours"))
		return
	}
	if err != nil {
		h.refuse(w, r, name, telemetry.CallbackUnreadable, problemOf(CodeUnreadableBody, "the body did not arrive whole"))
		return
	}
	said, err := verifier.VerifyCallback(r.Header, body, h.cfg.Now())
	if err == nil {
		err = said.Check()
	}
	if err != nil {
		h.doubt(w, r, name, err)
		return
	}
	h.keep(w, r, store.Callback{Channel: name, Said: said, Body: body})
}

// keep stores a verified callback and only then acknowledges it.
func (h *callbackHandler) keep(w http.ResponseWriter, r *http.Request, c store.Callback) {
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	defer cancel()
	fresh, err := h.cfg.Store.StoreCallback(ctx, c)
	if err != nil {
		h.cfg.Logger.Warn().Err(err).Str("channel", c.Channel).Msg("callback not stored, and not acknowledged: the provider sends it again")
		h.refuse(w, r, c.Channel, telemetry.CallbackNotStored,
			problemOf(CodeUnavailable, "the callback could not be stored: send it again").after(time.Second))
		return
	}
	crashpoint.Here(crashpoint.CallbackStored)
	outcome := telemetry.CallbackStored
	if !fresh {
		outcome = telemetry.CallbackDuplicate
	}
	h.cfg.Metrics.Callback(c.Channel, outcome)
	writeJSON(w, http.StatusOK, CallbackReceipt{outcome})
}

// doubt answers a callback that is not believed. The answer tells a forger
// nothing but that it is not.
func (h *callbackHandler) doubt(w http.ResponseWriter, r *http.Request, name string, err error) {
	switch {
	case errors.Is(err, channel.ErrNoCallbackSecret):
		h.refuse(w, r, name, telemetry.CallbackNoSecret,
			problemOf(CodeUnavailable, "this channel has no callback secret: set callback-secret, until then nothing is believed").after(time.Minute))
	case errors.Is(err, channel.ErrCallbackAge):
		h.refuse(w, r, name, telemetry.CallbackTooOld, problemOf(CodeInvalidSignature, "the signature is too old, or in the future"))
	case errors.Is(err, channel.ErrCallbackSignature):
		h.refuse(w, r, name, telemetry.CallbackBadSignature, problemOf(CodeInvalidSignature, "the signature is missing or wrong"))
	default:
		h.refuse(w, r, name, telemetry.CallbackUnreadable, problemOf(CodeUnreadableBody, "signed, but not a callback that this channel knows"))
	}
}

func (h *callbackHandler) refuse(w http.ResponseWriter, r *http.Request, name string, outcome telemetry.CallbackOutcome, p *Problem) {
	h.cfg.Metrics.Callback(name, outcome)
	writeProblem(w, r, p)
}
