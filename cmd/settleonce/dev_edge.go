package main

import (
	"crypto/rand"

	"github.com/settleonce/settleonce/producer/edge"
)

// invite gives a developer who added no callers a credential to try the edge with.
func (d *devRun) invite(w *worker) {
	if d.cfg.Callers.InDatabase() {
		return
	}
	d.token = "dev-" + rand.Text()
	w.guest = edge.NewStaticCallers(map[string]edge.Caller{d.token: {Name: "shop", Credential: "dev"}})
}

// curl is a line to paste; without a credential to show there is none.
func (d *devRun) curl() string {
	if d.token == "" {
		return ""
	}
	return `    curl -H "Authorization: Bearer $TOKEN" -H "Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)" \
      --json '{"orderId":"order-1002","amount":1999,"currency":"EUR","customerId":"cust-7","paymentMethod":"tok_visa","channel":"sim"}' \
      "$EDGE/v1/payments"
`
}
