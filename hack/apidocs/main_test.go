package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

func TestReferenceIsCurrent(t *testing.T) {
	page, err := reference(root)
	if err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile(root + "/docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(committed), string(page)); diff != "" {
		t.Errorf("docs/reference/api.md isn't what make generate makes (-committed +made):\n%s", diff)
	}
}

// Nothing that the CRDs or the constants have is left out.
func TestReferenceIsComplete(t *testing.T) {
	page, err := reference(root)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := readCRDs(root)
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	var walk func(s schema)
	walk = func(s schema) {
		for _, r := range s.Rules {
			rules++
			if !bytes.Contains(page, []byte("`"+r.Rule+"`")) || !bytes.Contains(page, []byte(text(r.Message))) {
				t.Errorf("a rule is left out: %s", r.Message)
			}
		}
		for name, field := range s.Properties {
			if !bytes.Contains(page, []byte("| `"+name+"` |")) && name != "metadata" && name != "kind" && name != "apiVersion" && name != "spec" && name != "status" {
				t.Errorf("field %s is left out", name)
			}
			if name != "conditions" {
				walk(field)
			}
		}
		if s.Items != nil {
			walk(*s.Items)
		}
		if s.Values != nil {
			walk(*s.Values)
		}
	}
	for _, k := range kinds {
		walk(k.Spec.Versions[0].Schema.OpenAPI)
	}
	if len(kinds) != 2 || rules < 10 {
		t.Errorf("%d kinds, %d rules", len(kinds), rules)
	}
	blocks, err := readConstants(root)
	if err != nil {
		t.Fatal(err)
	}
	words := 0
	for _, b := range blocks {
		for _, c := range b.constants {
			for _, prefix := range []string{"Reason", "State", "Condition"} {
				if strings.HasPrefix(c.name, prefix) {
					words++
					if !bytes.Contains(page, []byte("| `"+c.value+"` |")) {
						t.Errorf("%s is left out", c.name)
					}
				}
			}
		}
	}
	if words < 40 {
		t.Errorf("%d words", words)
	}
}

func TestBounds(t *testing.T) {
	one, many := 1, 64
	for _, tc := range []struct {
		schema   schema
		required bool
		want     string
	}{
		{schema{Type: "string"}, false, ""},
		{schema{Type: "string", MinLength: &one, MaxLength: &many}, true, "required, 1 to 64 characters"},
		{schema{Type: "string", Default: "UDP", Enum: []any{"UDP", "IPoIB"}}, false, "default `UDP`, one of `UDP`, `IPoIB`"},
		{schema{Type: "array", MaxItems: &many, ListType: "set", Items: &schema{Type: "string", MaxLength: &many}}, false, "at most 64 entries, no entry twice; each: at most 64 characters"},
		{schema{Type: "array", Items: &schema{Type: "string", MinLength: &one}}, false, "each: at least 1 characters"},
		{schema{Type: "array", ListKeys: []string{"name", "port"}}, false, "no two with the same name and port"},
		{schema{Type: "object", MaxProps: &many, Values: &schema{Type: "string", Pattern: "^a|b$"}}, false, "at most 64 entries; each: pattern `^a|b$`"},
	} {
		if got := boundsOf(tc.schema, tc.required); got != tc.want {
			t.Errorf("boundsOf(%+v) = %q, want %q", tc.schema, got, tc.want)
		}
	}
}
