package membership

import (
	"math/rand/v2"
	"time"
)

// backoff doubles from min to max.
type backoff struct {
	min, max time.Duration
	attempts int
}

// next is the time to wait, within a fifth of its nominal length, so that what
// failed together isn't tried together.
func (b *backoff) next() time.Duration {
	d := b.max
	if b.attempts < 32 && b.min<<b.attempts < b.max {
		d = b.min << b.attempts
	}
	b.attempts++
	return d - d/5 + rand.N(2*d/5+1)
}

func (b *backoff) reset() { b.attempts = 0 }
