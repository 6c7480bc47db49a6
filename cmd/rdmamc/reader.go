package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// readerGone reports whether nobody reads what is written any more: w is a pipe
// or a socket whose other end is closed. Without a look, a command that has
// nothing to write wouldn't notice.
func readerGone(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		polled := []unix.PollFd{{Fd: int32(fd)}} // errors are told unasked
		_, err := unix.Poll(polled, 0)
		gone = err == nil && polled[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return err == nil && gone
}
