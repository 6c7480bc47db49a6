//go:build !fault_noleave

package membership

// leaves: a membership that ends is left.
const leaves = true
