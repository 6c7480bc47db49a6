package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table is a header and rows.
type table struct {
	header []string
	rows   [][]string
}

// write prints v as JSON, or tables with an empty line between them.
func write(w io.Writer, output string, v any, tables ...table) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	var text bytes.Buffer
	for i, table := range tables {
		if i > 0 {
			text.WriteByte('\n')
		}
		t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{table.header}, table.rows...) {
			fmt.Fprintln(t, strings.Join(row, "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	_, err := w.Write(text.Bytes())
	return err
}

// orNone shows an empty cell.
func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
