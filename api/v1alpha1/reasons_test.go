package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every reason that a program of this project can give is one of the API's
// documented list. Packages that may not import the API have constants of
// their own for the same words.
func TestReasonsAreOfTheList(t *testing.T) {
	listed := reasons(t, ".")
	for _, dir := range []string{"../../internal/membership", "../../controllers", "../../rdma"} {
		given := reasons(t, dir)
		if len(given) == 0 && dir != "../../controllers" {
			t.Errorf("no constant in %s is a reason: has it moved?", dir)
		}
		for _, reason := range slices.Sorted(maps.Keys(given)) {
			// A host's, which the condition RDMAReady tells as ModuleNotLoaded.
			if _, ok := listed[reason]; !ok && reason != "NoRDMACM" {
				t.Errorf("reason %s of %s isn't in reasons.go", reason, dir)
			}
		}
	}
}

func TestReasonsAreDocumented(t *testing.T) {
	word := regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	for reason, c := range reasons(t, ".") {
		if c.name != "Reason"+reason {
			t.Errorf("%s is the constant of reason %s", c.name, reason)
		}
		if !word.MatchString(reason) || len(reason) > 64 {
			t.Errorf("%q isn't one word", reason)
		}
		if !strings.HasPrefix(c.doc, c.name) {
			t.Errorf("%s isn't documented", c.name)
		}
	}
}

type constant struct{ name, doc string }

// reasons are the string constants of a package that are called Reason... or
// reason..., or are of a type Reason, by value.
func reasons(t *testing.T, dir string) map[string]constant {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]constant{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
				return !ok
			}
			kind, _ := spec.Type.(*ast.Ident)
			value, literal := spec.Values[0].(*ast.BasicLit)
			name := spec.Names[0].Name
			if literal && (strings.HasPrefix(strings.ToLower(name), "reason") || kind != nil && kind.Name == "Reason") {
				text, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[text] = constant{name, spec.Doc.Text()}
			}
			return false
		})
	}
	return found
}
