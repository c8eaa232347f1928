package torture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/settleonce/settleonce/internal/demo"
)

// edgeShare is how many of a hundred payments come over HTTP.
const edgeShare = 20

// front puts a stretch of network before the gateways: clients and providers come
// through it.
func (t *tormentor) front(ctx context.Context, urls []string) ([]string, error) {
	t.edge = newTalkingProxy(func() dialogue { return bytesOnly{} })
	var out []string
	for _, url := range urls {
		own, err := t.edge.via(ctx, strings.TrimPrefix(url, "http://"))
		if err != nil {
			return nil, err
		}
		out = append(out, "http://"+own)
	}
	return out, nil
}

// lies are what may be wrong with callbacks, with the share of them. Rightly signed
// contradictions are left to channels that can be asked: elsewhere the word of the
// provider is all there is, and counts.
var (
	lies = map[string]float64{
		"callback_missing": 0.1, "callback_duplicate": 0.05, "callback_late": 0.05, "callback_early": 0.05, "callback_reordered": 0.05,
		"callback_forged": 0.05, "callback_stale": 0.05, "callback_garbage": 0.03,
		"callback_refund": 0.15, "callback_part_refund": 0.1,
	}
	signedLies = map[string]float64{"callback_opposite": 0.05, "callback_wrong_amount": 0.05}
)

// callingBack has every other channel of a run call back.
func callingBack(seed uint64, channels []demo.Channel) []demo.Channel {
	for i := range channels {
		c := &channels[i]
		if c.CallsBack = uint64(i)%2 == seed%2; !c.CallsBack {
			continue
		}
		rates := maps.Clone(lies)
		if c.Promises["query"] != no {
			maps.Copy(rates, signedLies)
		}
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(rates)) {
			parts = append(parts, fmt.Sprintf("%q:%g", kind, rates[kind]))
		}
		c.Behaviour = strings.TrimSuffix(c.Behaviour, "}") + `,"rates":{` + strings.Join(parts, ",") + `}}`
	}
	return channels
}
