package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every reason that a pod, a group or a node can show is explained.
func TestReasonsAreExplained(t *testing.T) {
	explained := read(t, "troubleshooting.md") + read(t, "concepts.md")
	for _, dir := range []string{"../internal/membership", "../controllers", "../api/v1alpha1"} {
		reasons := reasonConstants(t, dir)
		if len(reasons) == 0 {
			t.Errorf("no constant in %s is named Reason...: has it moved?", dir)
		}
		for _, reason := range reasons {
			if !strings.Contains(explained, "`"+reason+"`") {
				t.Errorf("reason %s of %s is explained neither in troubleshooting.md nor in concepts.md", reason, dir)
			}
		}
	}
}

// reasonConstants are the values of string constants named Reason... or
// reason... in a package.
func reasonConstants(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if !strings.HasPrefix(strings.ToLower(name.Name), "reason") || i >= len(spec.Values) {
					continue
				}
				if value, ok := spec.Values[i].(*ast.BasicLit); ok && value.Kind == token.STRING {
					text, err := strconv.Unquote(value.Value)
					if err != nil {
						t.Fatal(err)
					}
					reasons = append(reasons, text)
				}
			}
			return false
		})
	}
	return reasons
}

// Links to files and headings of the repository lead somewhere.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	var pages []string
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range append(pages, "../README.md") {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, heading := m[1], strings.TrimPrefix(m[2], "#")
			if strings.Contains(target, "://") {
				continue
			}
			checked++
			to := page
			if target != "" {
				to = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which isn't there", page, target)
				continue
			}
			if heading != "" && !headings(read(t, to))[heading] {
				t.Errorf("%s links to #%s in %s, which has no such heading", page, heading, to)
			}
		}
	}
	if checked == 0 {
		t.Error("no link was found")
	}
}

// headings are a page's anchors as GitHub makes them.
func headings(page string) map[string]bool {
	drop := regexp.MustCompile(`[^a-z0-9 _-]`)
	anchors := map[string]bool{}
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors[strings.ReplaceAll(title, " ", "-")] = true
		}
	}
	return anchors
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
