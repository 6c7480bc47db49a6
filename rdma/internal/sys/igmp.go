package sys

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	igmpPath = "/proc/thread-self/net/igmp" // /proc/self is the main thread's
	// maxIGMP bounds the table of a namespace: some 10^5 memberships.
	maxIGMP = 4 << 20
	// igmpAttempts bounds how often a table is read because it changed
	// meanwhile.
	igmpAttempts = 20
)

// igmp counts the users of the groups on an interface of a namespace.
func igmp(ns NetNS, link string) (map[netip.Addr]int, error) {
	var groups map[netip.Addr]int
	err := inNetNS(ns, func() (err error) {
		for range igmpAttempts {
			var text []byte
			if text, err = readAll(igmpPath, maxIGMP); err != nil {
				return err
			}
			if groups, err = parseIGMP(text, link); !errors.Is(err, errTorn) {
				return err
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("IGMP memberships: %w", err)
	}
	return groups, nil
}

// readAll reads a file of at most limit bytes.
func readAll(path string, limit int) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var text []byte
	page := make([]byte, 4<<10) // the kernel gives no more to one read
	for {
		n, err := unix.Read(fd, page)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return text, nil
		case len(text)+n > limit:
			return nil, unix.EFBIG
		}
		text = append(text, page[:n]...)
	}
}

// parseIGMP reads the groups of one interface from /proc/net/igmp: a line for
// each interface, then one for each of its groups, beginning with tabs.
//
//	Idx	Device    : Count Querier	Group    Users Timer	Reporter
//	2	eth0      :     2      V3
//					070101EF     1 0:00000000		0
//
// The group is the address's 32 bits as a number of the host's byte order.
//
// While groups come and go the text can be wrong: the kernel finds its place
// again by counting at each page, so that a group that goes hides another one,
// and it prints an interface's line with what is then the list's first group,
// which may be one that isn't printed. Neither agrees with the interfaces'
// counts: errTorn.
func parseIGMP(text []byte, link string) (map[netip.Addr]int, error) {
	groups := map[netip.Addr]int{}
	ours, awaited := false, 0
	lines := bufio.NewScanner(bytes.NewReader(text)) // lines of up to 64 KiB
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "\t") {
			name, count, ok := igmpInterface(line)
			if !ok {
				continue // the heading
			}
			if awaited != 0 {
				return nil, errTorn
			}
			ours, awaited = name == link, count
			continue
		}
		if awaited--; awaited < 0 {
			return nil, errTorn
		}
		if !ours {
			continue
		}
		group, users, err := igmpGroup(line)
		if err != nil {
			return nil, err
		}
		if _, twice := groups[group]; twice {
			return nil, errTorn
		}
		groups[group] = users
	}
	if lines.Err() != nil {
		return nil, errMalformed
	}
	if awaited != 0 {
		return nil, errTorn
	}
	return groups, nil
}

// igmpInterface reads an interface's line: its name, which has neither colon
// nor space in it, and how many groups follow.
func igmpInterface(line string) (name string, count int, ok bool) {
	head, tail, _ := strings.Cut(line, ":")
	of, counted := strings.Fields(head), strings.Fields(tail)
	if len(of) != 2 || len(counted) == 0 {
		return "", 0, false
	}
	count, err := strconv.Atoi(counted[0])
	return of[1], count, err == nil && count >= 0
}

func igmpGroup(line string) (netip.Addr, int, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return netip.Addr{}, 0, fmt.Errorf("line %.80q: %w", line, errMalformed)
	}
	group, err := strconv.ParseUint(fields[0], 16, 32)
	users, uerr := strconv.ParseUint(fields[1], 10, 31)
	if err := errors.Join(err, uerr); err != nil {
		return netip.Addr{}, 0, fmt.Errorf("line %.80q: %w", line, errMalformed)
	}
	var addr [4]byte
	binary.NativeEndian.PutUint32(addr[:], uint32(group))
	return netip.AddrFrom4(addr), int(users), nil
}

var (
	// errMalformed: the kernel's text isn't as it is known.
	errMalformed = errors.New("malformed")
	// errTorn: the table changed while the kernel made its text.
	errTorn = fmt.Errorf("the table changed while it was read: %w", unix.EAGAIN)
)
