package docs_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// pages are the documentation for users, by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	all := map[string]string{"../README.md": read(t, "../README.md")}
	for _, file := range files {
		all[file] = read(t, file)
	}
	return all
}

// blocks are the fenced blocks of a language.
func blocks(page, language string) []string {
	var found []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		found = append(found, m[1])
	}
	return found
}

// decodeStrict takes YAML or JSON, and no unknown field.
func decodeStrict(text string, into any) error {
	converted, err := yaml.ToJSON([]byte(text))
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(converted))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// Groups, quotas and answers that the pages show have the fields that the types
// have, and no others.
func TestExamplesHaveTheTypesFields(t *testing.T) {
	groups, quotas, answers := 0, 0, 0
	for name, page := range pages(t) {
		for _, block := range blocks(page, "yaml") {
			for document := range strings.SplitSeq(block, "\n---\n") {
				var err error
				switch {
				case strings.Contains(document, "kind: MulticastGroup\n"):
					groups++
					err = decodeStrict(document, &v1alpha1.MulticastGroup{})
				case strings.Contains(document, "kind: ResourceQuota\n"):
					quotas++
					err = decodeStrict(document, &corev1.ResourceQuota{})
				}
				if err != nil {
					t.Errorf("%s: %v in\n%s", name, err, document)
				}
			}
		}
		for _, block := range blocks(page, "json") {
			answers++
			if err := decodeStrict(block, &[]v1alpha1.MembershipStatus{}); err != nil {
				t.Errorf("%s: %v in\n%s", name, err, block)
			}
		}
	}
	if groups < 4 || quotas == 0 || answers == 0 {
		t.Errorf("%d groups, %d quotas and %d answers were found: have the blocks changed?", groups, quotas, answers)
	}
}

// Every field of a group's spec is in the page about groups.
func TestFieldsAreExplained(t *testing.T) {
	page := read(t, "groups.md")
	var missing func(reflect.Type)
	missing = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if !regexp.MustCompile(`(?m)^ +`+name+`: `).MatchString(page) && !strings.Contains(page, "`"+name+"`") {
				t.Errorf("groups.md doesn't have the field %s of %s", name, of.Name())
			}
			missing(of.Field(i).Type)
		}
	}
	missing(reflect.TypeFor[v1alpha1.MulticastGroupSpec]())
}

// The words in tables of reasons and states are the program's.
func TestReasonsExist(t *testing.T) {
	known := map[string]bool{}
	for _, dir := range reasonFolders {
		for _, reason := range stringConstants(t, dir, "reason") {
			known[reason] = true
		}
	}
	for _, state := range stringConstants(t, "../api/v1alpha1", "state") {
		known[state] = true
	}
	head := regexp.MustCompile("^\\| (reason|state|`Accepted`|`Ready`|`EthernetAddressUnique`) \\|")
	word := regexp.MustCompile("^\\| `([A-Za-z0-9]+)` \\|")
	checked := 0
	for name, page := range pages(t) {
		inside := false
		for line := range strings.Lines(page) {
			switch m := word.FindStringSubmatch(line); {
			case head.MatchString(line):
				inside = true
			case !strings.HasPrefix(line, "|"):
				inside = false
			case inside && m != nil:
				checked++
				if !known[m[1]] {
					t.Errorf("%s explains %s, which the program never says", name, m[1])
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d words were found in tables: have these changed?", checked)
	}
}

// Every state of a membership is explained.
func TestStatesAreExplained(t *testing.T) {
	states := stringConstants(t, "../api/v1alpha1", "state")
	if len(states) != 6 {
		t.Errorf("%d states %q, want 6: have the constants been renamed?", len(states), states)
	}
	for _, state := range states {
		if !strings.Contains(read(t, "concepts.md"), "| `"+state+"` |") {
			t.Errorf("concepts.md doesn't explain the state %s", state)
		}
	}
}

// Flags that the pages name are the programs'.
func TestFlagsExist(t *testing.T) {
	var sources strings.Builder
	for _, pattern := range []string{"../cmd/agent/config.go", "../cmd/controller/config.go", "../cmd/rdmamc/*.go", "../internal/cli/cli.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range files {
			sources.WriteString(read(t, file))
		}
	}
	checked := 0
	for name, page := range pages(t) {
		for _, m := range regexp.MustCompile("(?:`|rdmamc [^\n`]*)--([a-z][a-z-]*)").FindAllStringSubmatch(page, -1) {
			checked++
			if !strings.Contains(sources.String(), `"`+m[1]+`"`) {
				t.Errorf("%s names the flag --%s, which no program has", name, m[1])
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d flags were found: have the pages changed?", checked)
	}
}

// rdmamc has the commands that its page has, and no others.
func TestCommandsOfRDMAMC(t *testing.T) {
	var explained, have []string
	for _, m := range regexp.MustCompile(`(?m)^## ([a-z]+)$`).FindAllStringSubmatch(read(t, "rdmamc.md"), -1) {
		explained = append(explained, m[1])
	}
	source, err := os.ReadFile("../cmd/rdmamc/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^  rdmamc ([a-z]+) `).FindAllStringSubmatch(string(source), -1) {
		have = append(have, m[1])
	}
	if len(have) == 0 || !reflect.DeepEqual(explained, have) {
		t.Errorf("rdmamc.md explains %q, the program's usage has %q", explained, have)
	}
}
