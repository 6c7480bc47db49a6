package sys

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// answer lays bytes out as the kernel's answer to GET_EVENT.
func answer(b []byte) *eventAnswer {
	a := new(eventAnswer)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(a)), unsafe.Sizeof(*a)), b)
	return a
}

// The event of a join of 239.1.1.7 on InfiniBand, by its bytes (little endian).
func TestDecodeEvent(t *testing.T) {
	b, err := hex.DecodeString(strings.Join([]string{
		"e903000000000000",                 // uid 1001
		"05000000",                         // id 5
		"0c000000",                         // MULTICAST_JOIN
		"9affffff",                         // status -102
		"ffffff00",                         // qp_num
		"67452301",                         // qkey
		"ff124001ffff0000000000000f010107", // MGID
		"05000000",                         // flow label
		"04",                               // GID index
		"40",                               // hop limit
		"07",                               // traffic class
		"00",
		"03c0", // MLID
		"02",   // SL
		"01",   // source path bits
		"03",   // static rate
		"01",   // global
		"02",   // port
		"00",
	}, ""))
	if err != nil {
		t.Fatal(err)
	}
	want := Event{UID: 1001, ID: 5, Type: EventMulticastJoin, Status: -102, UD: UDParam{
		QPN: QPNMulticast, QKey: 0x01234567, MGID: netip.MustParseAddr("ff12:4001:ffff::f01:107").As16(), FlowLabel: 5,
		SGIDIndex: 4, HopLimit: 64, TrafficClass: 7, MLID: 0xc003, SL: 2, SrcPathBits: 1, StaticRate: 3, IsGlobal: true, Port: 2,
	}}
	if diff := cmp.Diff(want, decodeEvent(answer(b))); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add(make([]byte, 336))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := answer(b)
		e := decodeEvent(a)
		if e.UID != a.UID || e.ID != a.ID || e.Type != a.Event || e.Status != a.Status || e.UD.MLID != a.AH.DLID || e.UD.MGID != a.AH.DGID {
			t.Errorf("event %+v of %x", e, b)
		}
	})
}
