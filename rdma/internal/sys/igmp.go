package sys

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	igmpPath = "/proc/thread-self/net/igmp" // /proc/self is the main thread's
	// maxIGMP bounds the table of a namespace: some 10^5 memberships.
	maxIGMP = 4 << 20
	// igmpAttempts bounds how often a table of several pages is read again
	// because it changed meanwhile.
	igmpAttempts = 5
)

// igmp counts the users of the groups on an interface of a namespace.
//
// The kernel makes the text page by page, and finds its place again by
// counting: a group that goes between two pages hides another one. So a table
// of several pages is read until it comes out alike twice.
func igmp(ns NetNS, link string) (map[netip.Addr]int, error) {
	var groups map[netip.Addr]int
	err := inNetNS(ns, func() error {
		for range igmpAttempts {
			text, reads, err := readAll(igmpPath, maxIGMP)
			if err != nil {
				return err
			}
			before := groups
			if groups, err = parseIGMP(text, link); err != nil {
				return err
			}
			if reads == 1 || before != nil && maps.Equal(before, groups) {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("IGMP memberships: %w", err)
	}
	return groups, nil
}

// readAll reads a file of at most limit bytes, and says in how many reads.
func readAll(path string, limit int) (text []byte, reads int, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	defer unix.Close(fd)
	page := make([]byte, 16<<10) // the kernel's is 4 KiB, or larger
	for {
		n, err := unix.Read(fd, page)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, reads, err
		case n == 0:
			return text, reads, nil
		case len(text)+n > limit:
			return nil, reads, unix.EFBIG
		}
		text = append(text, page[:n]...)
		reads++
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
func parseIGMP(text []byte, link string) (map[netip.Addr]int, error) {
	groups := map[netip.Addr]int{}
	ours := false
	lines := bufio.NewScanner(bytes.NewReader(text)) // lines of up to 64 KiB
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "\t") {
			// No name has a colon or a space in it.
			head, _, _ := strings.Cut(line, ":")
			fields := strings.Fields(head)
			ours = len(fields) == 2 && fields[1] == link
			continue
		}
		if !ours {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return nil, fmt.Errorf("line %.80q: %w", line, errMalformed)
		}
		group, err := strconv.ParseUint(fields[0], 16, 32)
		users, uerr := strconv.ParseUint(fields[1], 10, 31)
		if err := errors.Join(err, uerr); err != nil {
			return nil, fmt.Errorf("line %.80q: %w", line, errMalformed)
		}
		var addr [4]byte
		binary.NativeEndian.PutUint32(addr[:], uint32(group))
		groups[netip.AddrFrom4(addr)] = int(users)
	}
	if err := lines.Err(); err != nil {
		return nil, errMalformed
	}
	return groups, nil
}

// errMalformed: the kernel's text isn't as it is known.
var errMalformed = errors.New("malformed")
