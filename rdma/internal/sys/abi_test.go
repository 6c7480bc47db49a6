package sys

import (
	"testing"
	"unsafe"
)

// The sizes and offsets of rdma/rdma_user_cm.h, as gcc lays it out.
func TestABILayout(t *testing.T) {
	var (
		request  request[createID]
		createID createID
		destroy  destroyID
		bind     bind
		query    query
		addr     queryAddrAnswer
		join     joinMulticast
		event    eventAnswer
	)
	for _, tt := range []struct {
		name      string
		got, want uintptr
	}{
		{"header", unsafe.Offsetof(request.Payload), 8},
		{"header.in", unsafe.Offsetof(request.In), 4},
		{"header.out", unsafe.Offsetof(request.Out), 6},
		{"create_id", unsafe.Sizeof(createID), 24},
		{"create_id.response", unsafe.Offsetof(createID.Response), 8},
		{"create_id.ps", unsafe.Offsetof(createID.PS), 16},
		{"create_id.qp_type", unsafe.Offsetof(createID.QPType), 18},
		{"create_id_resp", unsafe.Sizeof(idAnswer{}), 4},
		{"destroy_id", unsafe.Sizeof(destroy), 16},
		{"destroy_id.id", unsafe.Offsetof(destroy.ID), 8},
		{"destroy_id_resp", unsafe.Sizeof(destroyIDAnswer{}), 4},
		{"bind", unsafe.Sizeof(bind), 136},
		{"bind.addr_size", unsafe.Offsetof(bind.AddrSize), 4},
		{"bind.addr", unsafe.Offsetof(bind.Addr), 8},
		{"query", unsafe.Sizeof(query), 16},
		{"query.id", unsafe.Offsetof(query.ID), 8},
		{"query.option", unsafe.Offsetof(query.Option), 12},
		{"query_addr_resp", unsafe.Sizeof(addr), 280},
		{"query_addr_resp.port_num", unsafe.Offsetof(addr.Port), 8},
		{"query_addr_resp.pkey", unsafe.Offsetof(addr.PKey), 10},
		{"query_addr_resp.src_size", unsafe.Offsetof(addr.SourceSize), 12},
		{"query_addr_resp.src_addr", unsafe.Offsetof(addr.Source), 16},
		{"query_addr_resp.dst_addr", unsafe.Offsetof(addr.Dest), 144},
		{"query_addr_resp.ibdev_index", unsafe.Offsetof(addr.DeviceIndex), 272},
		{"join_mcast", unsafe.Sizeof(join), 152},
		{"join_mcast.uid", unsafe.Offsetof(join.UID), 8},
		{"join_mcast.id", unsafe.Offsetof(join.ID), 16},
		{"join_mcast.addr_size", unsafe.Offsetof(join.AddrSize), 20},
		{"join_mcast.join_flags", unsafe.Offsetof(join.Flags), 22},
		{"join_mcast.addr", unsafe.Offsetof(join.Addr), 24},
		{"get_event", unsafe.Sizeof(getEvent{}), 8},
		{"event_resp", unsafe.Sizeof(event), 336},
		{"event_resp.id", unsafe.Offsetof(event.ID), 8},
		{"event_resp.event", unsafe.Offsetof(event.Event), 12},
		{"event_resp.status", unsafe.Offsetof(event.Status), 16},
		{"event_resp.qp_num", unsafe.Offsetof(event.QPN), 20},
		{"event_resp.qkey", unsafe.Offsetof(event.QKey), 24},
		{"event_resp.dgid", unsafe.Offsetof(event.AH), 28},
		{"event_resp.flow_label", unsafe.Offsetof(event.AH) + unsafe.Offsetof(event.AH.FlowLabel), 44},
		{"event_resp.sgid_index", unsafe.Offsetof(event.AH) + unsafe.Offsetof(event.AH.SGIDIndex), 48},
		{"event_resp.hop_limit", unsafe.Offsetof(event.AH) + unsafe.Offsetof(event.AH.HopLimit), 49},
		{"event_resp.traffic_class", unsafe.Offsetof(event.AH) + unsafe.Offsetof(event.AH.TrafficClass), 50},
		{"event_resp.dlid", unsafe.Offsetof(event.AH) + unsafe.Offsetof(event.AH.DLID), 52},
		{"event_resp.sl", unsafe.Offsetof(event.AH) + unsafe.Offsetof(event.AH.SL), 54},
		{"event_resp.src_path_bits", unsafe.Offsetof(event.AH) + unsafe.Offsetof(event.AH.SrcPathBits), 55},
		{"event_resp.static_rate", unsafe.Offsetof(event.AH) + unsafe.Offsetof(event.AH.StaticRate), 56},
		{"event_resp.is_global", unsafe.Offsetof(event.AH) + unsafe.Offsetof(event.AH.IsGlobal), 57},
		{"event_resp.port_num", unsafe.Offsetof(event.AH) + unsafe.Offsetof(event.AH.Port), 58},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, tt.got, tt.want)
		}
	}
}
