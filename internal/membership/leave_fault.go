//go:build fault_noleave

package membership

// leaves: in this build, a negative control of the tests, nothing is ever left.
const leaves = false
