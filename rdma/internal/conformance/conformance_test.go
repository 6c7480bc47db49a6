package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// What both kernels run has to be in the list of what the real one must have
// run; hack/conformance has its own list of the rest.
func TestEveryScenarioIsListed(t *testing.T) {
	text, err := os.ReadFile("../../realkernel/scenarios.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(string(text), "\n")
	var names []string
	for _, s := range Scenarios() {
		names = append(names, s.Name)
		if want := "TestConformance/" + strings.ReplaceAll(s.Name, " ", "_"); !slices.Contains(listed, want) {
			t.Errorf("rdma/realkernel/scenarios.txt lacks %s", want)
		}
	}
	slices.Sort(names)
	if n := len(slices.Compact(names)); n != len(Scenarios()) {
		t.Errorf("%d names for %d scenarios", n, len(Scenarios()))
	}
}
