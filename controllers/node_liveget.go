//go:build !fault_noliveget

package controllers

// checksGroupLive: a group is read past the cache before its first join. The
// build tag fault_noliveget turns it off, to show that the tests notice.
const checksGroupLive = true
