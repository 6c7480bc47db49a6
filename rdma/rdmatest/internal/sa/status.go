package sa

import (
	"errors"
	"fmt"
)

// Status is the class specific part of a MAD's status, with which the SA
// refuses a request (IBA volume 1, table 188).
type Status uint16

// The statuses, in host order.
const (
	StatusNoResources            Status = 0x0100
	StatusRequestInvalid         Status = 0x0200
	StatusNoRecords              Status = 0x0300
	StatusTooManyRecords         Status = 0x0400
	StatusInvalidGID             Status = 0x0500
	StatusInsufficientComponents Status = 0x0600
)

// ErrNoAnswer is of a request that OpenSM drops: its sender isn't a port that
// the subnet manager knows, and sees a timeout.
var ErrNoAnswer = errors.New("the SA doesn't answer")

// Error is a refusal.
type Error struct {
	Status Status
	// Code is the number under which OpenSM logs it, such as 1B12; empty
	// where it logs none. A requester only sees Status.
	Code   string
	Reason string
}

func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("SA status %#04x: %s", uint16(e.Status), e.Reason)
	}
	return fmt.Sprintf("SA status %#04x: %s (OpenSM ERR %s)", uint16(e.Status), e.Reason, e.Code)
}

func invalid(code, format string, args ...any) *Error {
	return &Error{StatusRequestInvalid, code, fmt.Sprintf(format, args...)}
}
