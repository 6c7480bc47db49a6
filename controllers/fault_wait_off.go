//go:build !fault_nofinalizerwait

package controllers

// awaitsLeaving: a group that is being deleted stays until every node has left.
// The build tag fault_nofinalizerwait turns it off, to show that the tests
// notice.
const awaitsLeaving = true
