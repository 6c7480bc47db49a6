package deviceplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
)

// settle is how long a changed file is left alone, so that one that is written
// in several steps is read whole.
const settle = 50 * time.Millisecond

// loaded is what a configuration file had to say: a configuration, or why not.
type loaded struct {
	config *Config
	err    error
}

// configFile reads a configuration from a file, and again when it changes. The
// file may be a link, as those of ConfigMaps are, which change by a link of
// their folder's.
type configFile struct {
	path string
	log  logr.Logger

	text   []byte // nil: there is no file
	failed string // the error told last
	read   bool
}

// load reads the file; false: it is as it was. Without one the configuration is
// Default.
func (c *configFile) load() (loaded, bool) {
	text, err := readConfig(c.path)
	if err != nil {
		err = fmt.Errorf("configuration file %s: %w", c.path, err)
		if c.read && c.failed == err.Error() {
			return loaded{}, false
		}
		c.read, c.failed = true, err.Error()
		return loaded{err: err}, true
	}
	if c.read && c.failed == "" && (text == nil) == (c.text == nil) && bytes.Equal(text, c.text) {
		return loaded{}, false
	}
	c.read, c.failed, c.text = true, "", text
	if text == nil {
		return loaded{config: Default()}, true
	}
	config, err := Parse(text)
	if err != nil {
		err = fmt.Errorf("configuration file %s: %w", c.path, err)
	}
	return loaded{config, err}, true
}

// readConfig reads a file as far as Parse has use for; nil: there is none.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	return append([]byte{}, text...), nil
}

// run sends what the file says whenever that has changed, until ctx ends.
func (c *configFile) run(ctx context.Context, out chan<- loaded) {
	changed := make(chan struct{}, 1)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		watchDir(ctx, filepath.Dir(c.path), c.log, func() {
			select {
			case changed <- struct{}{}:
			default: // told already
			}
		})
	}()
	defer func() { <-watching }()
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		if !pause(ctx, settle) {
			return
		}
		next, news := c.load()
		if !news {
			continue
		}
		select {
		case out <- next:
		case <-ctx.Done():
			return
		}
	}
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
