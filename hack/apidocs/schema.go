package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// crd is what is shown of a CustomResourceDefinition.
type crd struct {
	Spec struct {
		Scope string `json:"scope"`
		Names struct {
			Kind       string   `json:"kind"`
			Plural     string   `json:"plural"`
			ShortNames []string `json:"shortNames"`
		} `json:"names"`
		Versions []struct {
			Columns []column `json:"additionalPrinterColumns"`
			Schema  struct {
				OpenAPI schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

type column struct {
	Name        string `json:"name"`
	JSONPath    string `json:"jsonPath"`
	Description string `json:"description"`
	Priority    int    `json:"priority"`
}

// schema is what is shown of an OpenAPI schema.
type schema struct {
	Type        string            `json:"type"`
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"`
	Required    []string          `json:"required"`
	Items       *schema           `json:"items"`
	Values      *schema           `json:"additionalProperties"`
	Enum        []any             `json:"enum"`
	Default     any               `json:"default"`
	Format      string            `json:"format"`
	Pattern     string            `json:"pattern"`
	Minimum     *json.Number      `json:"minimum"`
	Maximum     *json.Number      `json:"maximum"`
	MinLength   *int              `json:"minLength"`
	MaxLength   *int              `json:"maxLength"`
	MinItems    *int              `json:"minItems"`
	MaxItems    *int              `json:"maxItems"`
	MaxProps    *int              `json:"maxProperties"`
	ListType    string            `json:"x-kubernetes-list-type"`
	ListKeys    []string          `json:"x-kubernetes-list-map-keys"`
	Rules       []rule            `json:"x-kubernetes-validations"`
}

type rule struct {
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

func readCRDs(root string) ([]crd, error) {
	paths, err := filepath.Glob(filepath.Join(root, crds))
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%d files %s", len(paths), crds))
	}
	kinds := make([]crd, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(text, &kinds[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(kinds[i].Spec.Versions) != 1 {
			return nil, fmt.Errorf("%s has %d versions, want 1", path, len(kinds[i].Spec.Versions))
		}
	}
	return kinds, nil
}

func writeKind(w *bytes.Buffer, k crd) {
	version := k.Spec.Versions[0]
	names := k.Spec.Names
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n", names.Kind, paragraphs(version.Schema.OpenAPI.Description))
	scope := "in a namespace"
	if k.Spec.Scope == "Cluster" {
		scope = "of the cluster"
	}
	fmt.Fprintf(w, "An object %s. `kubectl get %s`, short `%s`, shows:\n\n| column | from | |\n|---|---|---|\n", scope, names.Plural, strings.Join(names.ShortNames, ", "))
	for _, c := range version.Columns {
		wide := ""
		if c.Priority > 0 {
			wide = " (`-o wide`)"
		}
		fmt.Fprintf(w, "| %s%s | `%s` | %s |\n", c.Name, wide, inCell(c.JSONPath), cell(c.Description))
	}
	for _, name := range []string{"spec", "status"} {
		if s, ok := version.Schema.OpenAPI.Properties[name]; ok {
			writeObject(w, names.Kind, name, s)
		}
	}
}

// writeObject writes a section for an object, and one for each object below it.
func writeObject(w *bytes.Buffer, kind, path string, s schema) {
	fmt.Fprintf(w, "\n### %s %s\n\n%s\n\n", kind, path, paragraphs(s.Description))
	if len(s.Rules) > 0 {
		w.WriteString("Rules:\n\n")
		writeRules(w, "", s.Rules)
		w.WriteByte('\n')
	}
	w.WriteString("| field | type | | bounds |\n|---|---|---|---|\n")
	names := fieldsOf(s)
	for _, name := range names {
		field := s.Properties[name]
		fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", name, typeOf(field), cell(strings.TrimPrefix(field.Description, name+" ")), inCell(boundsOf(field, slices.Contains(s.Required, name))))
	}
	writeFieldRules(w, s, names)
	for _, name := range names {
		below, path := s.Properties[name], path+"."+name
		if below.Items != nil {
			below, path = *below.Items, path+"[]"
			below.Description = s.Properties[name].Items.Description
		}
		// conditions are metav1.Condition, documented where Kubernetes is.
		if len(below.Properties) > 0 && name != "conditions" {
			writeObject(w, kind, path, below)
		}
	}
}

func writeFieldRules(w *bytes.Buffer, s schema, names []string) {
	heading := "\nRules of the fields:\n\n"
	for _, name := range names {
		field := s.Properties[name]
		for _, of := range []struct {
			subject string
			rules   []rule
		}{{"`" + name + "` ", leafRules(field)}, {"each of `" + name + "` ", innerRules(field)}} {
			if len(of.rules) > 0 {
				w.WriteString(heading)
				heading = ""
				writeRules(w, of.subject, of.rules)
			}
		}
	}
}

// leafRules of a field that has no section of its own.
func leafRules(s schema) []rule {
	if len(s.Properties) > 0 {
		return nil
	}
	return s.Rules
}

// innerRules are those of a list's items or a map's values.
func innerRules(s schema) []rule {
	switch {
	case s.Items != nil:
		return leafRules(*s.Items)
	case s.Values != nil:
		return leafRules(*s.Values)
	}
	return nil
}

func writeRules(w *bytes.Buffer, subject string, rules []rule) {
	for _, r := range rules {
		fmt.Fprintf(w, "- %s%s<br/>`%s`\n", subject, text(r.Message), r.Rule)
	}
}

// fieldsOf an object: what is required first, then by name.
func fieldsOf(s schema) []string {
	var names []string
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if ra, rb := slices.Contains(s.Required, a), slices.Contains(s.Required, b); ra != rb {
			if ra {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

func typeOf(s schema) string {
	switch {
	case s.Items != nil:
		return "list of " + typeOf(*s.Items)
	case s.Values != nil:
		return "map of " + typeOf(*s.Values)
	case s.Type == "":
		return "string"
	}
	return s.Type
}

// boundsOf a field in words.
func boundsOf(s schema, required bool) string {
	var b []string
	add := func(format string, args ...any) { b = append(b, fmt.Sprintf(format, args...)) }
	if required {
		add("required")
	}
	if s.Default != nil {
		add("default `%v`", s.Default)
	}
	if len(s.Enum) > 0 {
		values := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			values[i] = fmt.Sprintf("`%v`", v)
		}
		add("one of %s", strings.Join(values, ", "))
	}
	interval(add, "", s.Minimum, s.Maximum)
	interval(add, " characters", s.MinLength, s.MaxLength)
	interval(add, " entries", s.MinItems, s.MaxItems)
	interval(add, " entries", nil, s.MaxProps)
	if s.ListType == "set" {
		add("no entry twice")
	}
	if len(s.ListKeys) > 0 {
		add("no two with the same %s", strings.Join(s.ListKeys, " and "))
	}
	if s.Pattern != "" {
		add("pattern `%s`", s.Pattern)
	}
	text := strings.Join(b, ", ")
	if s.Items != nil && len(s.Items.Properties) == 0 {
		text += each(*s.Items)
	}
	if s.Values != nil {
		text += each(*s.Values)
	}
	return strings.TrimPrefix(text, "; ")
}

func each(s schema) string {
	if text := boundsOf(s, false); text != "" {
		return "; each: " + text
	}
	return ""
}

func interval[T any](add func(string, ...any), unit string, least, most *T) {
	switch {
	case least != nil && most != nil:
		add("%v to %v%s", *least, *most, unit)
	case least != nil:
		add("at least %v%s", *least, unit)
	case most != nil:
		add("at most %v%s", *most, unit)
	}
}

// cell is text in a table.
func cell(s string) string { return inCell(text(s)) }

// inCell is Markdown in a table.
func inCell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// text is Markdown that shows s on one line as it is.
func text(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.NewReplacer("<", "&lt;", "*", `\*`, "[", `\[`).Replace(s)
}

// paragraphs keeps those of s.
func paragraphs(s string) string {
	var out []string
	for p := range strings.SplitSeq(s, "\n\n") {
		out = append(out, text(p))
	}
	return strings.Join(out, "\n\n")
}

func anchor(heading string) string {
	return strings.ReplaceAll(strings.ToLower(heading), " ", "-")
}
