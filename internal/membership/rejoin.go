//go:build !fault_norejoin

package membership

// rejoins: a membership that was lost is joined again.
const rejoins = true
