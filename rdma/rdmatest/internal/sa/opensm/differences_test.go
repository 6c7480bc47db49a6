//go:build opensm

package opensm

import "strings"

// difference is one between OpenSM and package sa that was looked into, and
// stays: the comparison goes on without it, and fails where it doesn't occur.
type difference string

// misplacedProxy: OpenSM has ProxyJoin in bit 0 of its byte, a bit field of one
// in a C struct, where the specification and the kernel have bit 7. Requests'
// bit 7 isn't read, but kept with the record: queries are answered with the
// creator's bit 7, and with whether the port was joined by proxy in bit 0. Package
// sa has the latter in ProxyJoin, since that is what the field means.
const misplacedProxy difference = "ProxyJoin at bit 0 in the answers to queries"

// reviewed are all of them.
func reviewed() []difference { return []difference{misplacedProxy} }

// review takes the reviewed differences out of an answer of OpenSM's.
func (p *play) review(method string, theirs *answer) {
	for i, proxy := range theirs.proxy {
		rec := &theirs.Records[i]
		if method == "set" || method == "delete" {
			rec.ProxyJoin = proxy == proxyBit // the request's
			continue
		}
		rec.ProxyJoin = proxy&1 != 0
		if rec.ProxyJoin != (proxy&proxyBit != 0) {
			p.seen[misplacedProxy]++
		}
	}
}

// allDifferences fails where a reviewed one didn't occur in this run.
func allDifferences(p *play) {
	for _, d := range reviewed() {
		if p.seen[d] == 0 {
			p.t.Errorf("not seen: %s. Is that another OpenSM?", d)
		}
		p.t.Logf("%s: %d times", d, p.seen[d])
	}
}

// allRefusals fails where package sa can refuse in a way that this run didn't
// compare. Only 1B23 isn't among them, no MGID being free: that takes a thousand
// groups of the subnet manager's choice in a row.
func allRefusals(p *play) {
	const codes = "1B01 1B10 1B11 1B12 1B13 1B14 1B18 1B19 1B1B 1B20 1B24 1B25 1B26 1B28 " +
		"1B30 1B31 1B32 1B33 1B34 1B35 1B36 1B40 1B41 4C05"
	for _, code := range strings.Fields(codes) {
		if p.codes[code] == 0 {
			p.t.Errorf("no refusal with ERR %s", code)
		}
	}
	p.t.Logf("refusals by number: %v", p.codes)
}
