// Package sa is the record side of a simulated subnet manager: what it answers
// to requests for MCMemberRecords, and which multicast groups and MLIDs the
// subnet has then. It follows OpenSM 3.3.23, whose answers to the same requests
// test/opensm compares it with, down to which refusal comes first.
//
// It is a table and its rules: no goroutine, no lock, no time, no I/O. A caller
// that uses an SA from several goroutines serialises the calls. Lateness, loss
// and failover are the caller's to simulate, the last one with SA.Restart.
//
//	s := sa.New(sa.Options{})
//	s.SetPort(sa.Port{GUID: 1, MTU: sa.MTU4096, Rate: sa.Rate100Gbps, PKeys: []uint16{0xffff}})
//	broadcast, err := s.Precreate(sa.Preconfigured{PKey: 0xffff})
//	answer, err := s.Set(sa.Request{Requester: 1, Mask: sa.MaskJoin, Record: sa.MCMemberRecord{
//		MGID: broadcast.MGID, PortGID: s.PortGID(1), JoinState: sa.FullMember,
//	}})
//
// Of OpenSM it leaves out: alias GUIDs, partitions with both memberships of one
// P_Key (allow_both_pkeys), one MLID for several groups
// (consolidate_ipv6_snm_req), and the options that turn validation off.
package sa
