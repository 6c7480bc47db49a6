//go:build opensm

package opensm

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// answer is what either SA says to a request.
type answer struct {
	Status  sa.Status
	Records []sa.MCMemberRecord
	// Code is the number under which OpenSM logs the refusal.
	Code string

	// proxy are the bytes of OpenSM's records that hold ProxyJoin.
	proxy []uint8
}

// client is a saclient on one of the subnet's ports.
type client struct {
	in  io.Writer
	out *bufio.Scanner
}

// startClient runs one on a node's port, which must have the GID given.
func startClient(t *testing.T, s settings, node string, gid netip.Addr) *client {
	t.Helper()
	p := s.command(t, "client-"+node, s.client)
	p.Env = append(p.Env, "SIM_HOST="+node, "LD_PRELOAD="+s.umad2sim)
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout = nil
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, p)
	c := &client{in: in, out: bufio.NewScanner(out)}
	line, err := c.line()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(line)
	if len(f) != 4 || f[0] != "port" || f[1] != gid.String() || f[2] == "0" || f[3] == "0" {
		t.Fatalf("the client on %s says %q, want its GID %v and LIDs", node, line, gid)
	}
	return c
}

func (c *client) line() (string, error) {
	if !c.out.Scan() {
		return "", fmt.Errorf("the client ended: %w", c.out.Err())
	}
	if text, bad := strings.CutPrefix(c.out.Text(), "error "); bad {
		return "", fmt.Errorf("the client: %s", text)
	}
	return c.out.Text(), nil
}

// ask returns the answer, without its Code.
func (c *client) ask(method string, r sa.Request) (answer, error) {
	if _, err := fmt.Fprintln(c.in, requestLine(method, r)); err != nil {
		return answer{}, err
	}
	head, err := c.line()
	if err != nil {
		return answer{}, err
	}
	var status, count int
	if _, err := fmt.Sscanf(head, "%v %d", &status, &count); err != nil {
		return answer{}, fmt.Errorf("answer %q", head)
	}
	a := answer{Status: sa.Status(status)}
	for range count {
		line, err := c.line()
		if err != nil {
			return answer{}, err
		}
		rec, proxy, err := parseRecord(line)
		if err != nil {
			return answer{}, err
		}
		a.Records, a.proxy = append(a.Records, rec), append(a.proxy, proxy)
	}
	return a, nil
}

// smKey is OpenSM's own sa_key.
const smKey = 1

// proxyBit is where ProxyJoin is in its byte (IBA volume 1, table 210).
const proxyBit uint8 = 0x80

// requestLine is a request in saclient's words.
func requestLine(method string, r sa.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %#x", method, uint64(r.Mask))
	var proxy uint8
	if r.Record.ProxyJoin {
		proxy = proxyBit
	}
	for _, f := range fields(&r.Record, &proxy) {
		if text := f.text(); text != "0" && text != "::" {
			fmt.Fprintf(&b, " %s=%s", f.name, text)
		}
	}
	if r.Trusted {
		fmt.Fprintf(&b, " smkey=%d", smKey)
	}
	return b.String()
}

// parseRecord reads one; ProxyJoin is left to the caller.
func parseRecord(line string) (rec sa.MCMemberRecord, proxy uint8, err error) {
	known := map[string]field{}
	for _, f := range fields(&rec, &proxy) {
		known[f.name] = f
	}
	for _, word := range strings.Fields(line) {
		name, value, _ := strings.Cut(word, "=")
		f, ok := known[name]
		if !ok {
			return rec, 0, fmt.Errorf("record %q: %s is no field", line, name)
		}
		if err := f.set(value); err != nil {
			return rec, 0, fmt.Errorf("record %q: %w", line, err)
		}
		delete(known, name)
	}
	if len(known) > 0 {
		return rec, 0, fmt.Errorf("record %q lacks fields", line)
	}
	return rec, proxy, nil
}

// field of a record by saclient's name.
type field struct {
	name string
	text func() string
	set  func(string) error
}

func fields(r *sa.MCMemberRecord, proxy *uint8) []field {
	return []field{
		gidField("mgid", &r.MGID), gidField("portgid", &r.PortGID),
		number("qkey", &r.QKey), number("mlid", &r.MLID),
		number("mtusel", &r.MTUSelector), number("mtu", &r.MTU),
		number("tclass", &r.TClass), number("pkey", &r.PKey),
		number("ratesel", &r.RateSelector), number("rate", &r.Rate),
		number("lifesel", &r.PacketLifeTimeSelector), number("life", &r.PacketLifeTime),
		number("sl", &r.SL), number("flow", &r.FlowLabel), number("hop", &r.HopLimit),
		number("scope", &r.Scope), number("state", &r.JoinState),
		number("proxy", proxy),
	}
}

func gidField(name string, where *netip.Addr) field {
	return field{
		name: name,
		text: func() string {
			if !where.IsValid() {
				return "::"
			}
			return where.String()
		},
		set: func(s string) (err error) {
			*where, err = netip.ParseAddr(s)
			return err
		},
	}
}

func number[N ~uint8 | ~uint16 | ~uint32](name string, where *N) field {
	return field{
		name: name,
		text: func() string { return strconv.FormatUint(uint64(*where), 10) },
		set: func(s string) error {
			v, err := strconv.ParseUint(s, 0, 32)
			if *where = N(v); err == nil && uint64(*where) != v {
				err = fmt.Errorf("%s=%s is too large", name, s)
			}
			return err
		},
	}
}
