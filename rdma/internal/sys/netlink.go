package sys

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// The RDMA netlink's notifications (rdma/rdma_netlink.h), since Linux 6.12. On
// an older kernel nobody sends to the group.
const (
	rdmaGroupNotify = 4
	rdmaMonitor     = rdmaNLDev<<10 | 28 // RDMA_NLDEV_CMD_MONITOR
	rdmaNLDev       = 5
)

// ueventGroup is the group that the kernel sends uevents to; udev has another.
const ueventGroup = 1

// watchLinks watches the links and addresses of a namespace.
func watchLinks(ns NetNS) (*watch, error) {
	s, err := openNetlink(ns, unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, err
	}
	w := newWatch(s)
	look := func(message []byte) {
		if hasMessage(message, aboutLinks) {
			w.signal()
		}
	}
	return w.start(w.receive(s, look, w.signal)), nil
}

// hasMessage tells whether one of the netlink messages in b is as wanted.
// The last one's payload may be cut off.
func hasMessage(b []byte, wanted func(kind uint16, payload []byte) bool) bool {
	for len(b) >= unix.SizeofNlMsghdr {
		length := uint64(binary.NativeEndian.Uint32(b))
		if length < unix.SizeofNlMsghdr {
			return false
		}
		payload := b[unix.SizeofNlMsghdr:min(length, uint64(len(b)))]
		if wanted(binary.NativeEndian.Uint16(b[4:]), payload) {
			return true
		}
		next := (length + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
		b = b[min(next, uint64(len(b))):]
	}
	return false
}

// aboutLinks tells messages about links and addresses from those that bridges
// send about their ports, of which a host of pods has many.
func aboutLinks(kind uint16, payload []byte) bool {
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return len(payload) > 0 && payload[0] == unix.AF_UNSPEC
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return true
	}
	return false
}

func aboutRDMA(kind uint16, _ []byte) bool { return kind == rdmaMonitor }

// subsystem is the subsystem of the object that a uevent is about: a heading,
// ACTION@DEVPATH, then KEY=VALUE, each ended by a zero byte. "" if it is none.
func subsystem(uevent []byte) string {
	fields := bytes.Split(uevent, []byte{0})
	if !bytes.Contains(fields[0], []byte("@")) {
		return ""
	}
	const key = "SUBSYSTEM="
	i := slices.IndexFunc(fields[1:], func(f []byte) bool { return bytes.HasPrefix(f, []byte(key)) })
	if i < 0 {
		return ""
	}
	return string(fields[1+i][len(key):])
}
