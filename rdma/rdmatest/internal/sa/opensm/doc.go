// Package opensm compares package sa with OpenSM: the same requests go to both,
// from the same ports of the same subnet, and the answers must be the same,
// request by request: status, every field of every record, and the number under
// which OpenSM logs a refusal.
//
// It is tests only, with build tag opensm, and needs what test/opensm/run.sh
// sets up: ibsim and opensm (Debian's ibsim-utils and opensm) in user space.
package opensm
