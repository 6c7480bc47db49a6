package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// row is a figure, and what it is compared with.
type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Unit of Value and of Reference.
	Unit string `json:"unit"`
	// Reference was measured in the same run; 0: there is none.
	Reference float64 `json:"reference,omitempty"`
	// Ratio is Value/Reference.
	Ratio float64 `json:"ratio,omitempty"`
	// Goal is the most that Ratio, or Value where there is no reference, should
	// be; 0: there is none.
	Goal float64 `json:"goal,omitempty"`
	// Met tells whether it is; absent where there is no goal.
	Met *bool `json:"met,omitempty"`
}

func newRow(name string, value, reference float64, unit string, goal float64) row {
	r := row{Name: name, Value: value, Unit: unit, Reference: reference, Goal: goal}
	of := value
	if reference != 0 {
		r.Ratio = value / reference
		of = r.Ratio
	}
	if goal != 0 {
		met := of <= goal
		r.Met = &met
	}
	return r
}

func printTable(w io.Writer, rows []row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tVALUE\tREFERENCE\tRATIO\tGOAL\t")
	number := func(f float64, unit string) string {
		if f == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3g%s", f, unit)
	}
	for _, r := range rows {
		verdict := ""
		if r.Met != nil {
			verdict = map[bool]string{true: "met", false: "missed"}[*r.Met]
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, fmt.Sprintf("%.3g %s", r.Value, r.Unit), number(r.Reference, " "+r.Unit), number(r.Ratio, ""), number(r.Goal, ""), verdict)
	}
	_ = t.Flush() // w is standard output
}

// median of at least one figure.
func median[T ~int64 | ~float64](all []T) T {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
