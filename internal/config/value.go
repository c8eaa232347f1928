package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/payment"
)

// promise is a duration that a provider documents; "forever", "immediate" and
// "undocumented" are words for its special values.
type promise time.Duration

var promiseWords = map[string]promise{
	"forever":      promise(channel.Forever),
	"immediate":    promise(channel.Immediate),
	"undocumented": 0,
}

// parse writes text into the variable that target points to. Its errors say
// what a value of that type looks like.
func parse(target any, text string) error {
	switch t := target.(type) {
	case *string:
		*t = text
	case *bool:
		return parseInto(t, text, strconv.ParseBool, "true or false")
	case *int:
		return parseInto(t, text, strconv.Atoi, "a whole number")
	case *float64:
		return parseInto(t, text, parseFloat, "a number, like 0.2")
	case *time.Duration:
		return parseInto(t, text, time.ParseDuration, "a duration, like 250ms, 30s or 336h")
	case *promise:
		return parseInto(t, text, parsePromise, "a duration, like 24h, or forever, immediate or undocumented")
	case *[]string:
		*t = splitList(text)
	case *map[string]string:
		return parseInto(t, text, parsePairs, "a list like caller=namespace,caller=namespace")
	default:
		return fmt.Errorf("no parser for %T", target)
	}
	return nil
}

func parseInto[T any](target *T, text string, parseFunc func(string) (T, error), shape string) error {
	v, err := parseFunc(strings.TrimSpace(text))
	if err != nil {
		return errors.New("write it as " + shape)
	}
	*target = v
	return nil
}

func parseFloat(text string) (float64, error) {
	return strconv.ParseFloat(text, 64)
}

func parsePromise(text string) (promise, error) {
	if p, ok := promiseWords[strings.ToLower(text)]; ok {
		return p, nil
	}
	d, err := time.ParseDuration(text)
	return promise(d), err
}

func parsePairs(text string) (map[string]string, error) {
	pairs := make(map[string]string)
	for _, item := range splitList(text) {
		key, value, ok := strings.Cut(item, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("%q is not key=value", item)
		}
		pairs[key] = value
	}
	return pairs, nil
}

func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// format is the inverse of parse, for tables and documents.
func format(target any) string {
	switch t := target.(type) {
	case *string:
		return *t
	case *time.Duration:
		return payment.DurationText(*t)
	case *promise:
		return formatPromise(*t)
	case *[]string:
		return strings.Join(*t, ",")
	case *map[string]string:
		items := make([]string, 0, len(*t))
		for _, key := range slices.Sorted(maps.Keys(*t)) {
			items = append(items, key+"="+(*t)[key])
		}
		return strings.Join(items, ",")
	case *bool:
		return strconv.FormatBool(*t)
	case *int:
		return strconv.Itoa(*t)
	case *float64:
		return strconv.FormatFloat(*t, 'g', -1, 64)
	default:
		return fmt.Sprint(target)
	}
}

func formatPromise(p promise) string {
	for word, value := range promiseWords {
		if p == value {
			return word
		}
	}
	return payment.DurationText(time.Duration(p))
}

// typeName is how the documentation calls the type of a setting.
func typeName(target any) string {
	switch target.(type) {
	case *bool:
		return "bool"
	case *int:
		return "int"
	case *float64:
		return "number"
	case *time.Duration:
		return "duration"
	case *promise:
		return "promise"
	case *[]string:
		return "list"
	case *map[string]string:
		return "pairs"
	default:
		return "text"
	}
}
