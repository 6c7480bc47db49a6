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

// reasonFolders are where the words are that objects show as reasons.
var reasonFolders = []string{"../internal/membership", "../controllers", "../api/v1alpha1"}

// Every reason that a pod, a group or a node can show is explained.
func TestReasonsAreExplained(t *testing.T) {
	explained := read(t, "troubleshooting.md") + read(t, "groups.md")
	for _, dir := range reasonFolders {
		for _, reason := range stringConstants(t, dir, "reason") {
			if !strings.Contains(explained, "| `"+reason+"` |") {
				t.Errorf("reason %s of %s is in no table of troubleshooting.md or groups.md", reason, dir)
			}
		}
	}
	if reasons := stringConstants(t, "../api/v1alpha1", "reason"); len(reasons) < 40 {
		t.Errorf("only %d constants of the API are named Reason...: have they moved?", len(reasons))
	}
}

// stringConstants are the values of string constants in a package whose names
// begin so, in upper or lower case.
func stringConstants(t *testing.T, dir, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
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
				if !strings.HasPrefix(strings.ToLower(name.Name), prefix) || i >= len(spec.Values) {
					continue
				}
				if value, ok := spec.Values[i].(*ast.BasicLit); ok && value.Kind == token.STRING {
					text, err := strconv.Unquote(value.Value)
					if err != nil {
						t.Fatal(err)
					}
					values = append(values, text)
				}
			}
			return false
		})
	}
	return values
}

// Links to files and headings of the repository lead somewhere.
func TestLinks(t *testing.T) {
	code := regexp.MustCompile("`[^`\n]*`") // an expression may look like a link
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
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, page), ""), -1) {
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
