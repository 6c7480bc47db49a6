package membership

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

func TestParseRequests(t *testing.T) {
	sendOnly, full := rdma.SendOnlyFullMember, rdma.FullMember
	request := func(namespace, name, iface string) Request {
		return Request{Namespace: namespace, Name: name, Interface: iface, Required: true}
	}
	tests := []struct {
		name       string
		annotation string
		want       []Request
		wantErr    []string // nil: none
	}{
		{name: "nothing", annotation: "  "},
		{name: "short", annotation: "market-data", want: []Request{request("own", "market-data", "")}},
		{
			name: "short, every part", annotation: " market-data , feeds/orders.v1@net1 ",
			want: []Request{request("own", "market-data", ""), request("feeds", "orders.v1", "net1")},
		},
		{
			name:       "JSON, every field",
			annotation: `[{"name":"market-data","namespace":"feeds","interface":"net1","mode":"SendOnlyFullMember","required":false},{"name":"b","mode":"FullMember"}]`,
			want: []Request{
				{Namespace: "feeds", Name: "market-data", Interface: "net1", Mode: &sendOnly},
				{Namespace: "own", Name: "b", Mode: &full, Required: true},
			},
		},
		{name: "JSON, empty list", annotation: `[]`},
		{name: "twice", annotation: "a,b,a", want: []Request{request("own", "a", ""), request("own", "b", "")}},
		{name: "twice, the last one's mode counts", annotation: `[{"name":"a"},{"name":"a","mode":"SendOnlyFullMember"}]`,
			want: []Request{{Namespace: "own", Name: "a", Mode: &sendOnly, Required: true}}},
		{name: "on two interfaces", annotation: "a@net1,a@net2", want: []Request{request("own", "a", "net1"), request("own", "a", "net2")}},
		{name: "the good ones of a bad list", annotation: "a,B,c,",
			want:    []Request{request("own", "a", ""), request("own", "c", "")},
			wantErr: []string{`element 2 ("B"): "B" isn't the name of a MulticastGroup; want lower case`, `element 4 (""): is empty; want [namespace/]name[@interface]`}},
		{name: "no interface", annotation: "a@", wantErr: []string{"no interface after @"}},
		{name: "no namespace", annotation: "/a", wantErr: []string{"no namespace before /"}},
		{name: "no name", annotation: "feeds/@net1", wantErr: []string{"has no name"}},
		{name: "bad interface", annotation: "a@this-is-too-long-a-name", wantErr: []string{"isn't the name of a network interface; want at most 15"}},
		{name: "interface with a slash", annotation: `[{"name":"a","interface":"../x"}]`, wantErr: []string{"isn't the name of a network interface"}},
		{name: "bad namespace", annotation: "Feeds/a", wantErr: []string{"isn't the name of a namespace"}},
		{name: "name ends in a dot", annotation: "a.", wantErr: []string{"isn't the name of a MulticastGroup"}},
		{name: "unknown field", annotation: `[{"name":"a","group":"x"},{"name":"b"}]`, want: []Request{request("own", "b", "")},
			wantErr: []string{`element 1`, `unknown field "group"; the fields are name, namespace, interface, mode and required`}},
		{name: "field in another case", annotation: `[{"Name":"a"}]`, wantErr: []string{`unknown field "Name"`}},
		{name: "bad mode", annotation: `[{"name":"a","mode":"Listener"}]`, wantErr: []string{`"Listener" isn't a mode; want FullMember or SendOnlyFullMember`}},
		{name: "wrong type", annotation: `[{"name":7}]`, wantErr: []string{"field name: want a string"}},
		{name: "null", annotation: `[{"name":null}]`, wantErr: []string{"field name: want a string"}},
		{name: "empty field", annotation: `[{"name":"a","interface":""}]`, wantErr: []string{"field interface: is empty; leave the field out"}},
		{name: "required isn't a boolean", annotation: `[{"name":"a","required":"no"}]`, wantErr: []string{"field required: want true or false"}},
		{name: "not objects", annotation: `["a",null,{"name":"b"}]`, want: []Request{request("own", "b", "")}, wantErr: []string{`element 1 ("\"a\""): want an object`, "element 2"}},
		{name: "broken JSON keeps what came before", annotation: `[{"name":"a"},{"name":`, want: []Request{request("own", "a", "")}, wantErr: []string{"isn't JSON from element 2 on"}},
		{name: "JSON without end", annotation: `[{"name":"a"}`, want: []Request{request("own", "a", "")}, wantErr: []string{"no end"}},
		{name: "something after the list", annotation: `[{"name":"a"}] b`, want: []Request{request("own", "a", "")}, wantErr: []string{"after the end"}},
		{name: "an object", annotation: `{"name":"a"}`, wantErr: []string{"want a JSON list"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRequests(tt.annotation, "own")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if len(tt.wantErr) == 0 && err != nil {
				t.Errorf("error = %v, want none", err)
			}
			for _, want := range tt.wantErr {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want one with %q", err, want)
				}
			}
		})
	}
}

func TestParseRequestsBounds(t *testing.T) {
	var short, list strings.Builder
	list.WriteString("[")
	for i := range 10_000 {
		fmt.Fprintf(&short, "group-%d,", i)
		fmt.Fprintf(&list, `{"name":"group-%d"},`, i)
	}
	tests := map[string]struct {
		annotation string
		want       int
		wantErr    string
	}{
		"10,000 groups, short": {strings.TrimSuffix(short.String(), ","), MaxRequests, "asks for 10000 groups; the first 256 are taken"},
		"10,000 groups, JSON":  {strings.TrimSuffix(list.String(), ",") + "]", MaxRequests, "asks for 10000 groups; the first 256 are taken"},
		"250 KiB of one name":  {strings.Repeat("a", 250<<10), 0, "isn't the name of a MulticastGroup"},
		"250 KiB of commas":    {strings.Repeat(",", 250<<10), 0, "and 251 more bad elements"},
		"250 KiB of brackets":  {strings.Repeat("[", 250<<10), 0, "JSON"},
		"more than 256 KiB":    {strings.Repeat("a,", 129<<10), 0, "at most 262144 are read"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRequests(tt.annotation, "own")
			if len(got) != tt.want {
				t.Errorf("%d requests, want %d", len(got), tt.want)
			}
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Fatalf("error = %v, want one with %q", err, tt.wantErr)
			}
			if len(err.Error()) > 4096 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func FuzzParseRequests(f *testing.F) {
	f.Add("market-data, feeds/orders@net1")
	f.Add(`[{"name":"market-data","namespace":"feeds","interface":"net1","mode":"SendOnlyFullMember","required":true}]`)
	f.Add(`[{"name":"a"},{"name":`)
	f.Fuzz(func(t *testing.T, annotation string) {
		requests, err := ParseRequests(annotation, "own")
		if len(requests) > MaxRequests {
			t.Errorf("%d requests", len(requests))
		}
		for _, r := range requests {
			if err := r.validate(); err != nil {
				t.Errorf("request %+v: %v", r, err)
			}
		}
		if err != nil && len(err.Error()) > 8192 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
