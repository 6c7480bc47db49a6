// Command pod is the only program in the images of the real-kernel tests: it
// does nothing until it is told to end. It is the pause program of the sandboxes
// too.
package main

import (
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	// Not used here: the tests find the process by it.
	flag.String("pod", "", "namespace/name of the pod")
	exitAfter := flag.Duration("exit-after", 0, "end with status 0 after this time; 0: never")
	linger := flag.Duration("linger", 0, "how long to go on after SIGTERM")
	flag.Parse()

	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM, syscall.SIGINT)
	// As process 1 of a sandbox it inherits orphans.
	signal.Ignore(syscall.SIGCHLD)

	var timeout <-chan time.Time
	if *exitAfter > 0 {
		timeout = time.After(*exitAfter)
	}
	select {
	case <-terminated:
		time.Sleep(*linger)
	case <-timeout:
	}
}
