// Package inbox is for services downstream of settleonce (packing, receipts,
// anybody who acts on payments): it runs a handler once for each message, however
// often the message is delivered.
//
// Kafka delivers at least once, and operators replay topics. So every message has
// an id that never changes (ce_id), and the inbox remembers it, as a marker, in
// the transaction in which the handler does its work: both are committed, or
// neither is (G7). A handler that works through the transaction it is given is
// therefore run once; what it does outside of it (a mail, a call) may be done
// twice, and needs an identity of its own.
//
//	inbox, err := inbox.New(inbox.Config{
//		Name: "packing", Brokers: brokers, Pool: pool, Topics: []string{"payment.events"},
//		Handler: func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
//			event, err := m.Event()
//			if err != nil || event.State != payment.Succeeded {
//				return err
//			}
//			_, err = tx.Exec(ctx, "INSERT INTO packing_tasks (order_id) VALUES ($1)", event.OrderID)
//			return err
//		},
//	})
//
// Messages of one key are handled in their order. A message whose handler goes on
// failing is published to the dead-letter topic, with the reason, and the rest
// goes on; it has no marker, so that it is handled when it is sent again.
package inbox
