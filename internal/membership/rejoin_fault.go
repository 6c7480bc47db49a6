//go:build fault_norejoin

package membership

// rejoins: in this build, a negative control of the tests, the loss of a
// membership isn't heard of.
const rejoins = false
