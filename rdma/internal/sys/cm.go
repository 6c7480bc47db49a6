package sys

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CMPath is the rdma_cm device.
const CMPath = "/dev/infiniband/rdma_cm"

// cm is an open rdma_cm device.
//
// The descriptor is in non-blocking mode, so that waiting for an event takes
// no thread and ends with Close. The device polls readable but never writable,
// although every command is a write: commands go out by Control, and GET_EVENT
// is written from within Read's readiness loop.
type cm struct {
	file *os.File
	raw  syscall.RawConn
}

func openCM(path string) (*cm, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &cm{file: file, raw: raw}, nil
}

func (c *cm) Close() error { return c.file.Close() }

// do sends one command.
func do[P any](c *cm, command uint32, payload P, answerSize uintptr) error {
	req := &request[P]{
		Command: command,
		In:      uint16(unsafe.Sizeof(payload)),
		Out:     uint16(answerSize),
		Payload: payload,
	}
	var err error
	// Control fails on a closed file alone, with an error that says so only in
	// its text.
	if c.raw.Control(func(fd uintptr) { err = write(fd, req) }) != nil {
		return os.ErrClosed
	}
	return err
}

// write writes a request, again where a signal came between.
func write[P any](fd uintptr, req *request[P]) error {
	b := unsafe.Slice((*byte)(unsafe.Pointer(req)), unsafe.Sizeof(*req))
	for {
		n, err := unix.Write(int(fd), b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n != len(b):
			return io.ErrShortWrite
		}
		return nil
	}
}

// pin keeps an answer where it is until the pinner lets go, and gives the
// address that the kernel stores it to.
func pin[A any](p *runtime.Pinner, answer *A) uint64 {
	p.Pin(answer)
	return uint64(uintptr(unsafe.Pointer(answer)))
}

func (c *cm) CreateID(ns NetNS, uid uint64, ps uint16) (uint32, error) {
	var p runtime.Pinner
	defer p.Unpin()
	answer := new(idAnswer)
	payload := createID{UID: uid, Response: pin(&p, answer), PS: ps, QPType: qpTypeUD}
	// An id belongs to the namespace of the thread that creates it.
	err := inNetNS(ns, func() error {
		return do(c, cmdCreateID, payload, unsafe.Sizeof(*answer))
	})
	return answer.ID, err
}

func (c *cm) Bind(id uint32, addr netip.Addr) error {
	sa, size, err := encodeSockaddr(addr)
	if err != nil {
		return err
	}
	return do(c, cmdBind, bind{ID: id, AddrSize: size, Addr: sa}, 0)
}

func (c *cm) QueryAddr(id uint32) (BoundAddr, error) {
	var p runtime.Pinner
	defer p.Unpin()
	answer := new(queryAddrAnswer)
	payload := query{Response: pin(&p, answer), ID: id, Option: queryAddr}
	if err := do(c, cmdQuery, payload, unsafe.Sizeof(*answer)); err != nil {
		return BoundAddr{}, err
	}
	return BoundAddr{
		NodeGUID:    binary.BigEndian.Uint64(answer.NodeGUID[:]),
		Port:        answer.Port,
		PKey:        binary.BigEndian.Uint16(answer.PKey[:]),
		Source:      decodeSockaddr(&answer.Source, answer.SourceSize),
		DeviceIndex: answer.DeviceIndex,
	}, nil
}

func (c *cm) Join(id uint32, uid uint64, group netip.Addr, flags uint16) (uint32, error) {
	sa, size, err := encodeSockaddr(group)
	if err != nil {
		return 0, err
	}
	return c.join(id, uid, sa, size, flags)
}

func (c *cm) JoinMGID(id uint32, uid uint64, mgid netip.Addr, flags uint16) (uint32, error) {
	sa, size, err := encodeSockaddrIB(mgid)
	if err != nil {
		return 0, err
	}
	return c.join(id, uid, sa, size, flags)
}

func (c *cm) join(id uint32, uid uint64, sa sockaddrStorage, size, flags uint16) (uint32, error) {
	var p runtime.Pinner
	defer p.Unpin()
	answer := new(idAnswer)
	payload := joinMulticast{Response: pin(&p, answer), UID: uid, ID: id, AddrSize: size, Flags: flags, Addr: sa}
	err := do(c, cmdJoin, payload, unsafe.Sizeof(*answer))
	return answer.ID, err
}

func (c *cm) Leave(handle uint32) (uint32, error) { return c.release(cmdLeave, handle) }

func (c *cm) Destroy(id uint32) (uint32, error) { return c.release(cmdDestroyID, id) }

func (c *cm) release(command, id uint32) (uint32, error) {
	var p runtime.Pinner
	defer p.Unpin()
	answer := new(destroyIDAnswer)
	payload := destroyID{Response: pin(&p, answer), ID: id}
	err := do(c, command, payload, unsafe.Sizeof(*answer))
	return answer.EventsReported, err
}

func (c *cm) GetEvent() (Event, error) {
	var p runtime.Pinner
	defer p.Unpin()
	answer := new(eventAnswer)
	req := &request[getEvent]{
		Command: cmdGetEvent,
		In:      uint16(unsafe.Sizeof(getEvent{})),
		Out:     uint16(unsafe.Sizeof(*answer)),
		Payload: getEvent{Response: pin(&p, answer)},
	}
	var err error
	rerr := c.raw.Read(func(fd uintptr) bool {
		err = write(fd, req)
		return err != unix.EAGAIN // false: wait until readable
	})
	if rerr != nil {
		return Event{}, os.ErrClosed
	}
	if err != nil {
		return Event{}, err
	}
	return decodeEvent(answer), nil
}

func decodeEvent(a *eventAnswer) Event {
	return Event{
		UID:    a.UID,
		ID:     a.ID,
		Type:   a.Event,
		Status: a.Status,
		UD: UDParam{
			QPN:          a.QPN,
			QKey:         a.QKey,
			MGID:         a.AH.DGID,
			FlowLabel:    a.AH.FlowLabel,
			SGIDIndex:    a.AH.SGIDIndex,
			HopLimit:     a.AH.HopLimit,
			TrafficClass: a.AH.TrafficClass,
			MLID:         a.AH.DLID,
			SL:           a.AH.SL,
			SrcPathBits:  a.AH.SrcPathBits,
			StaticRate:   a.AH.StaticRate,
			IsGlobal:     a.AH.IsGlobal != 0,
			Port:         a.AH.Port,
		},
	}
}
