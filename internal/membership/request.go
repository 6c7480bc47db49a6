package membership

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

const (
	// MaxRequests is how many groups one pod can ask for; what comes after is
	// refused.
	MaxRequests = 256

	// maxAnnotation is Kubernetes' own bound on a pod's annotations together,
	// in bytes.
	maxAnnotation = 256 << 10

	// maxTold is how many bad elements an error names one by one.
	maxTold = 5
)

// Request is one group that a pod asks for.
type Request struct {
	Namespace string // the pod's own unless said otherwise
	Name      string
	Interface string         // "": all that match
	Mode      *rdma.JoinMode // nil: the most that the group allows
	Required  bool           // whether the pod's condition depends on it; default true
}

// ParseRequests parses the annotation by which a pod asks for groups: a
// comma-separated list of
//
//	[namespace/]name[@interface]
//
// or a JSON list of objects with name, namespace, interface, mode (FullMember
// or SendOnlyFullMember) and required (default true). One namespace, name and
// interface asked for twice is one request, the last one's mode counting.
//
// The error names each bad element and says what is right; it has a bounded
// length. The requests of the good ones are returned beside it.
func ParseRequests(annotation, podNamespace string) ([]Request, error) {
	if len(annotation) > maxAnnotation {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", len(annotation), maxAnnotation)
	}
	p := parser{namespace: podNamespace, index: map[requestKey]int{}}
	switch text := strings.TrimSpace(annotation); {
	case text == "":
	case text[0] == '[':
		p.list(text)
	case text[0] == '{':
		p.bad(0, "a JSON object", errors.New("want a JSON list: put the object in [ ]"))
	default:
		for i, element := range strings.Split(text, ",") {
			if !p.room() {
				continue
			}
			r, err := parseShort(strings.TrimSpace(element), podNamespace)
			if err != nil {
				p.bad(i, element, err)
				continue
			}
			p.add(r)
		}
	}
	return p.requests, p.err()
}

type requestKey struct{ namespace, name, iface string }

// parser gathers requests and errors, both bounded.
type parser struct {
	namespace string
	requests  []Request
	index     map[requestKey]int
	elements  int
	told      []error
	untold    int
}

// room counts an element and says whether it is within the limit.
func (p *parser) room() bool {
	p.elements++
	return p.elements <= MaxRequests
}

func (p *parser) add(r Request) {
	key := requestKey{r.Namespace, r.Name, r.Interface}
	if i, ok := p.index[key]; ok {
		p.requests[i] = r
		return
	}
	p.index[key] = len(p.requests)
	p.requests = append(p.requests, r)
}

func (p *parser) bad(i int, element string, err error) {
	if len(p.told) == maxTold {
		p.untold++
		return
	}
	p.told = append(p.told, fmt.Errorf("element %d (%s): %w", i+1, quote(element), err))
}

func (p *parser) err() error {
	errs := p.told
	if p.untold > 0 {
		errs = append(errs, fmt.Errorf("and %d more bad elements", p.untold))
	}
	if p.elements > MaxRequests {
		errs = append(errs, fmt.Errorf("it asks for %d groups; the first %d are taken, the rest is refused", p.elements, MaxRequests))
	}
	return errors.Join(errs...)
}

// quote shortens what a user wrote, which may be 256 KiB of anything.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return fmt.Sprintf("%q...", strings.ToValidUTF8(s[:most], ""))
	}
	return fmt.Sprintf("%q", s)
}

// parseShort parses [namespace/]name[@interface].
func parseShort(s, podNamespace string) (Request, error) {
	r := Request{Namespace: podNamespace, Name: s, Required: true}
	if s == "" {
		return r, errors.New("is empty; want [namespace/]name[@interface]")
	}
	if before, iface, ok := strings.Cut(s, "@"); ok {
		if iface == "" {
			return r, errors.New("has no interface after @; want [namespace/]name[@interface]")
		}
		r.Name, r.Interface = before, iface
	}
	if namespace, name, ok := strings.Cut(r.Name, "/"); ok {
		if namespace == "" {
			return r, errors.New("has no namespace before /; want [namespace/]name[@interface]")
		}
		r.Namespace, r.Name = namespace, name
	}
	return r, r.validate()
}

// list parses a JSON list, element by element, so that one which is bad costs
// only itself.
func (p *parser) list(text string) {
	dec := json.NewDecoder(strings.NewReader(text))
	if _, err := dec.Token(); err != nil { // the bracket
		p.told = append(p.told, fmt.Errorf("isn't JSON: %w", err))
		return
	}
	for i := 0; dec.More(); i++ {
		var element json.RawMessage
		if err := dec.Decode(&element); err != nil {
			p.told = append(p.told, fmt.Errorf("isn't JSON from element %d on: %w", i+1, err))
			return
		}
		if !p.room() {
			continue
		}
		r, err := parseObject(element, p.namespace)
		if err != nil {
			p.bad(i, string(element), err)
			continue
		}
		p.add(r)
	}
	if _, err := dec.Token(); err != nil {
		p.told = append(p.told, fmt.Errorf("the JSON list has no end: %w", err))
		return
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		p.told = append(p.told, errors.New("there is something after the end of the JSON list"))
	}
}

// parseObject parses one element of the JSON form.
func parseObject(element json.RawMessage, podNamespace string) (Request, error) {
	r := Request{Namespace: podNamespace, Required: true}
	// encoding/json takes names in any case; users of Kubernetes' API expect
	// one spelling.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(element, &fields); err != nil || fields == nil {
		return r, errors.New(`want an object such as {"name":"market-data"}`)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		var err error
		switch name {
		case "name":
			err = stringField(value, &r.Name)
		case "namespace":
			err = stringField(value, &r.Namespace)
		case "interface":
			err = stringField(value, &r.Interface)
		case "mode":
			var mode string
			if err = stringField(value, &mode); err == nil {
				r.Mode, err = parseMode(mode)
			}
		case "required":
			if string(bytes.TrimSpace(value)) == "null" || json.Unmarshal(value, &r.Required) != nil {
				err = errors.New("want true or false")
			}
		default:
			return r, fmt.Errorf("unknown field %s; the fields are name, namespace, interface, mode and required", quote(name))
		}
		if err != nil {
			return r, fmt.Errorf("field %s: %w", name, err)
		}
	}
	return r, r.validate()
}

func stringField(value json.RawMessage, into *string) error {
	if string(bytes.TrimSpace(value)) == "null" || json.Unmarshal(value, into) != nil {
		return errors.New("want a string")
	}
	if *into == "" {
		return errors.New("is empty; leave the field out instead")
	}
	return nil
}

func parseMode(s string) (*rdma.JoinMode, error) {
	var mode rdma.JoinMode
	switch s {
	case rdma.FullMember.String():
		mode = rdma.FullMember
	case rdma.SendOnlyFullMember.String():
		mode = rdma.SendOnlyFullMember
	default:
		return nil, fmt.Errorf("%s isn't a mode; want FullMember or SendOnlyFullMember", quote(s))
	}
	return &mode, nil
}

// validate refuses what can't be the name of anything.
func (r Request) validate() error {
	switch {
	case r.Name == "":
		return errors.New("has no name")
	case !isDNSName(r.Name, 253, true):
		return fmt.Errorf("%s isn't the name of a MulticastGroup; want lower case letters, digits, - and ., at most 253, beginning and ending with a letter or digit", quote(r.Name))
	case !isDNSName(r.Namespace, 63, false):
		return fmt.Errorf("%s isn't the name of a namespace; want lower case letters, digits and -, at most 63, beginning and ending with a letter or digit", quote(r.Namespace))
	case r.Interface != "" && !isLinkName(r.Interface):
		return fmt.Errorf("%s isn't the name of a network interface; want at most 15 characters without spaces, slashes and colons", quote(r.Interface))
	}
	return nil
}

// isDNSName follows RFC 1123: a subdomain where dots are allowed, else a label.
func isDNSName(s string, most int, dots bool) bool {
	if s == "" || len(s) > most {
		return false
	}
	if dots {
		for label := range strings.SplitSeq(s, ".") {
			if !isDNSName(label, most, false) {
				return false
			}
		}
		return true
	}
	for i := range len(s) {
		c := s[i]
		alphanumeric := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alphanumeric && (c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return true
}

// isLinkName follows the kernel's dev_valid_name, for printable ASCII.
func isLinkName(s string) bool {
	if len(s) > 15 || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '/' || c == ':' {
			return false
		}
	}
	return true
}
