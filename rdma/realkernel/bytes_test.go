//go:build realkernel

package realkernel

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// commands of the device that both sides need, with what differs between two
// runs of one program: pointers, uids (librdmacm uses pointers for these too)
// and handles.
var commands = map[uint32]struct {
	name   string
	masked [][2]int
}{
	0:  {"CREATE_ID", [][2]int{{8, 16}, {16, 24}}},            // uid, response
	1:  {"DESTROY_ID", [][2]int{{8, 16}, {16, 20}}},           // response, id
	17: {"LEAVE_MCAST", [][2]int{{8, 16}, {16, 20}}},          // response, handle
	20: {"BIND", [][2]int{{8, 12}}},                           // id
	22: {"JOIN_MCAST", [][2]int{{8, 16}, {16, 24}, {24, 28}}}, // response, uid, id
}

// queries come in different numbers, so that their bytes are compared as sets.
var queries = map[uint32]struct {
	name   string
	masked [][2]int
}{
	12: {"GET_EVENT", [][2]int{{8, 16}}},            // response
	19: {"QUERY_ADDR", [][2]int{{8, 16}, {16, 20}}}, // response, id
}

// sameBytes compares, with nothing but uids, pointers and handles masked, what
// mckey's librdmacm and this package write for a create, bind, join and leave.
func sameBytes(t *testing.T, _ conformance.Machine) {
	theirs := trace(t, nil, "mckey", "-s", "-b", "10.0.0.2", "-m", "239.3.2.7", "-C", "1")
	// librdmacm begins with a bind by AF_IB, to learn whether the kernel has it.
	const portSpace = 8 + 16
	for len(theirs) > 0 && !(binary.LittleEndian.Uint32(theirs[0]) == 0 && binary.LittleEndian.Uint16(theirs[0][portSpace:]) == sys.PortSpaceUDP) {
		theirs = theirs[1:]
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ours := trace(t, []string{roleEnv + "=" + roleJoinOnce}, self)

	theirSequence, theirQueries := digest(theirs)
	ourSequence, ourQueries := digest(ours)
	if len(theirSequence) != len(commands) {
		t.Errorf("mckey wrote %d of these commands, want %d:\n%s", len(theirSequence), len(commands), strings.Join(theirSequence, "\n"))
	}
	if diff := cmp.Diff(theirSequence, ourSequence); diff != "" {
		t.Errorf("commands (-librdmacm +ours):\n%s", diff)
	}
	if diff := cmp.Diff(theirQueries, ourQueries); diff != "" {
		t.Errorf("queries (-librdmacm +ours):\n%s", diff)
	}
}

// digest renders commands with their masked bytes.
func digest(writes [][]byte) (sequence []string, asked map[string]bool) {
	asked = map[string]bool{}
	for _, w := range writes {
		number := binary.LittleEndian.Uint32(w)
		if c, ok := commands[number]; ok {
			sequence = append(sequence, c.name+" "+mask(w, c.masked))
		}
		if q, ok := queries[number]; ok && (number != 19 || binary.LittleEndian.Uint32(w[20:]) == 0) {
			asked[q.name+" "+mask(w, q.masked)] = true
		}
	}
	return sequence, asked
}

func mask(b []byte, ranges [][2]int) string {
	text := hex.EncodeToString(b)
	for _, r := range ranges {
		text = text[:2*r[0]] + strings.Repeat("-", 2*(r[1]-r[0])) + text[2*r[1]:]
	}
	return text
}

// write(3, "\x00...", 32) = 32, also where the line ends unfinished.
var writeLine = regexp.MustCompile(`write\(\d+, "((?:\\x[0-9a-f]{2})*)", (\d+)`)

// trace runs a program and gives what it wrote to rdma_cm.
func trace(t *testing.T, env []string, program string, args ...string) [][]byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "strace")
	cmd := exec.Command("strace", append([]string{
		"-f", "-xx", "-s", "4096", "-e", "trace=write", "-P", sys.CMPath, "-o", out, program,
	}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, text)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var writes [][]byte
	for _, match := range writeLine.FindAllSubmatch(text, -1) {
		b, err := hex.DecodeString(strings.ReplaceAll(string(match[1]), `\x`, ""))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(string(match[2])); err != nil || n != len(b) || n < 16 {
			t.Fatalf("a write of %s bytes, of which strace shows %d", match[2], len(b))
		}
		writes = append(writes, b)
	}
	if len(writes) == 0 {
		t.Fatalf("%s wrote nothing to %s:\n%s", cmd, sys.CMPath, text)
	}
	return writes
}
