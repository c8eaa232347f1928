package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

const outputFlag = "output"

// offerOutput gives a command the flag -o.
func offerOutput(cmd *cobra.Command) {
	cmd.Flags().StringP(outputFlag, "o", "table", "table, for people, or json, for machines")
}

// wantsJSON reads the flag -o.
func wantsJSON(cmd *cobra.Command) (bool, error) {
	format, err := cmd.Flags().GetString(outputFlag)
	if err != nil {
		return false, fmt.Errorf("read flag -o: %w", err)
	}
	switch format {
	case "json":
		return true, nil
	case "table":
		return false, nil
	default:
		return false, asUsage(fmt.Errorf("-o %s is not known: use table or json", format))
	}
}

// show prints a value as JSON, or as the table that toTable makes of it.
func show[T any](cmd *cobra.Command, value T, toTable func(*table, T)) error {
	asJSON, err := wantsJSON(cmd)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), value)
	}
	t := newTable(cmd.OutOrStdout())
	toTable(t, value)
	return t.flush()
}

func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// table prints aligned columns.
type table struct {
	w   *tabwriter.Writer
	err error
}

func newTable(w io.Writer) *table {
	return &table{w: tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
}

// row adds a line.
func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = fmt.Sprint(c)
	}
	_, err := fmt.Fprintln(t.w, strings.TrimRight(strings.Join(texts, "\t"), "\t"))
	t.err = errors.Join(t.err, err)
}

func (t *table) flush() error {
	if err := errors.Join(t.err, t.w.Flush()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}
