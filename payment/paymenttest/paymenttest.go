// Package paymenttest holds commands for tests: a valid one to change, and a
// corpus of good and bad ones that every reader of commands must judge alike.
package paymenttest

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

// Key is the idempotencyKey of the sample command.
const Key = "8e03978e-40d5-43e8-bc93-6894a57f9324"

// Command returns the command that the contract shows.
func Command() payment.Command {
	return payment.Command{
		IdempotencyKey: uuid.UUID{0x8e, 0x03, 0x97, 0x8e, 0x40, 0xd5, 0x43, 0xe8, 0xbc, 0x93, 0x68, 0x94, 0xa5, 0x7f, 0x93, 0x24},
		Caller:         "shop",
		Operation:      payment.OperationCharge,
		OrderID:        "order-1001",
		Obligation:     "order-1001",
		Amount:         1999,
		Currency:       "EUR",
		CustomerID:     "cust-7",
		PaymentMethod:  "tok_visa",
		Channel:        "sim",
		IssuedAt:       time.Date(2026, 11, 30, 10, 0, 0, 123000000, time.UTC),
		Metadata:       map[string]string{"cart": "c-55"},
	}
}

// member is one name of a JSON object with its value as JSON text.
type member struct{ name, value string }

// object is a JSON text under construction: order and repeats are kept.
type object []member

// base returns the sample command as JSON text.
func base() object {
	return object{
		{"idempotencyKey", `"` + Key + `"`},
		{"caller", `"shop"`},
		{"operation", `"charge"`},
		{"orderId", `"order-1001"`},
		{"amount", `1999`},
		{"currency", `"EUR"`},
		{"customerId", `"cust-7"`},
		{"paymentMethod", `"tok_visa"`},
		{"channel", `"sim"`},
		{"issuedAt", `"2026-11-30T10:00:00.123Z"`},
	}
}

// with replaces a member's value, or appends the member.
func (o object) with(name, value string) object {
	changed := append(object(nil), o...)
	for i := range changed {
		if changed[i].name == name {
			changed[i].value = value
			return changed
		}
	}
	return append(changed, member{name, value})
}

// without drops a member.
func (o object) without(name string) object {
	changed := make(object, 0, len(o))
	for _, m := range o {
		if m.name != name {
			changed = append(changed, m)
		}
	}
	return changed
}

// and appends a member even if the name is there already.
func (o object) and(name, value string) object {
	return append(append(object(nil), o...), member{name, value})
}

// JSON writes the object; names are written as they are, escapes included.
func (o object) JSON() []byte {
	var text strings.Builder
	for i, m := range o {
		text.WriteByte("{,"[min(i, 1)])
		text.WriteString(`"` + m.name + `":` + m.value)
	}
	return []byte(text.String() + "}")
}
