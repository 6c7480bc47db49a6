// Bench measures this project on a real kernel with Soft-RoCE, in the virtual
// machine of hack/vm, and prints a table: `make bench`, or run.sh. Each row is a
// ratio of two things that were measured in one run, interleaved, since
// the machines that this runs on are slow, shared and noisy; the goals are about
// the ratios.
package main
