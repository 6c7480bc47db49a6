package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// block is a group of string constants with what is said of all of them.
type block struct {
	doc       string
	constants []constant
}

type constant struct{ name, value, doc string }

// readConstants reads those of the Go package, in the order of its files.
func readConstants(root string) ([]block, error) {
	paths, err := filepath.Glob(filepath.Join(root, goPackage, "*.go"))
	if err != nil {
		return nil, err
	}
	var blocks []block
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.CONST {
				blocks = append(blocks, block{d.Doc.Text(), constantsOf(d)})
			}
		}
	}
	return blocks, nil
}

func constantsOf(d *ast.GenDecl) []constant {
	var found []constant
	for _, spec := range d.Specs {
		s, ok := spec.(*ast.ValueSpec)
		if !ok || len(s.Values) != 1 {
			continue
		}
		value, ok := constantValue(s.Values[0])
		if ok {
			found = append(found, constant{s.Names[0].Name, value, cmp.Or(s.Doc.Text(), d.Doc.Text())})
		}
	}
	return found
}

// constantValue of a string, or of one behind the project's domain.
func constantValue(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		domain, ok := e.X.(*ast.Ident)
		if text, literal := constantValue(e.Y); ok && literal && domain.Name == "Domain" {
			return "rdma-multicast.dev" + text, true
		}
	}
	return "", false
}

// writeConstants writes the states, the conditions and, by condition, the reasons.
func writeConstants(w *bytes.Buffer, blocks []block) {
	w.WriteString("\n## States\n\nOf a membership, the same words everywhere.\n\n")
	writeTable(w, "state", blocks, "State")
	w.WriteString("\n## Conditions\n\n")
	writeTable(w, "condition", blocks, "Condition")
	w.WriteString("\n## Reasons\n\nThe words are stable: they can be compared and alerted on. Messages aren't.\n")
	for _, b := range blocks {
		if !slices.ContainsFunc(b.constants, func(c constant) bool { return strings.HasPrefix(c.name, "Reason") }) {
			continue
		}
		doc := strings.Join(strings.Fields(strings.TrimPrefix(b.doc, "Reasons of ")), " ")
		title := doc[:strings.IndexAny(doc+",", ",.")]
		fmt.Fprintf(w, "\n### Reasons of %s\n\n", title)
		if doc != title+"." {
			fmt.Fprintf(w, "%s\n\n", paragraphs(strings.TrimSpace(b.doc)))
		}
		writeTable(w, "reason", []block{b}, "Reason")
	}
}

func writeTable(w *bytes.Buffer, title string, blocks []block, prefix string) {
	fmt.Fprintf(w, "| %s | |\n|---|---|\n", title)
	for _, b := range blocks {
		for _, c := range b.constants {
			if strings.HasPrefix(c.name, prefix) {
				fmt.Fprintf(w, "| `%s` | %s |\n", c.value, cell(about(c)))
			}
		}
	}
}

// about is a constant's documentation without its name.
func about(c constant) string {
	doc := strings.TrimPrefix(strings.Join(strings.Fields(c.doc), " "), c.name)
	doc = strings.TrimSpace(strings.TrimPrefix(doc, ":"))
	return strings.TrimPrefix(doc, "means that ")
}

// answerSchema is the JSON Schema of the annotation group-status.
type answerSchema struct {
	Description string `json:"description"`
	Defs        struct {
		Membership schema `json:"membership"`
	} `json:"$defs"`
}

func readAnswer(root string) (answerSchema, error) {
	var answer answerSchema
	text, err := os.ReadFile(filepath.Join(root, answerPath))
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, fmt.Errorf("%s: %w", answerPath, err)
	}
	return answer, nil
}

func writeAnswer(w *bytes.Buffer, answer answerSchema, blocks []block) {
	w.WriteString("\n## Annotations and conditions of pods\n\n| key | |\n|---|---|\n")
	for _, b := range blocks {
		for _, c := range b.constants {
			if !strings.HasPrefix(c.name, "Reason") && strings.HasSuffix(c.name, "Annotation") || c.name == "ConditionGroupsJoined" {
				fmt.Fprintf(w, "| `%s` | %s |\n", c.value, cell(about(c)))
			}
		}
	}
	fmt.Fprintf(w, "\n### Elements of group-status\n\n%s Its JSON Schema is [%s](%s).\n\n| property | type | | bounds |\n|---|---|---|---|\n",
		paragraphs(answer.Description), filepath.Base(answerPath), filepath.Base(answerPath))
	membership := answer.Defs.Membership
	for _, name := range fieldsOf(membership) {
		field := membership.Properties[name]
		fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", name, typeOf(field), cell(field.Description), inCell(boundsOf(field, slices.Contains(membership.Required, name))))
	}
}
