package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// write prints rows as a table, or v as JSON.
func write(w io.Writer, output string, v any, header []string, rows [][]string) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := w.Write(table.Bytes())
	return err
}

// orNone shows an empty cell.
func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
