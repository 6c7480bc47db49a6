package deviceplugin

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
)

const (
	kubeletSocket = "kubelet.sock"
	// lookInterval is the time between two looks at what a notification should
	// have told of: it may be lost, or the folder not be there yet.
	lookInterval = time.Second
)

// kubeletDir is kubelet's folder of device plugins' sockets.
type kubeletDir struct {
	path string
	log  logr.Logger

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// socketID tells one socket file from the next at its path.
type socketID struct {
	dev, ino uint64
	made     syscall.Timespec
}

func newKubeletDir(root string, log logr.Logger) *kubeletDir {
	return &kubeletDir{path: filepath.Join(root, "device-plugins"), log: log, changed: make(chan struct{})}
}

// socket is kubelet's own; false: there is none, kubelet isn't up.
func (d *kubeletDir) socket() (socketID, bool) {
	return identify(filepath.Join(d.path, kubeletSocket))
}

func identify(path string) (socketID, bool) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return socketID{}, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return socketID{}, false
	}
	return socketID{stat.Dev, stat.Ino, stat.Mtim}, true
}

// changes is closed when something in the folder may have changed since it was
// asked for.
func (d *kubeletDir) changes() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

func (d *kubeletDir) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.changed)
	d.changed = make(chan struct{})
}

// run tells of changes until ctx ends.
func (d *kubeletDir) run(ctx context.Context) {
	watchDir(ctx, d.path, d.log, d.tell)
}

// watchDir calls changed whenever something in a folder may have changed: at
// once where the kernel tells, every lookInterval in any case.
func watchDir(ctx context.Context, dir string, log logr.Logger, changed func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		log.Error(err, "inotify is used up: raise fs.inotify.max_user_instances; looking every second instead", "folder", dir)
		watcher = &fsnotify.Watcher{}
	} else {
		defer watcher.Close()
	}
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		// It is gone from the list when the folder is.
		if err == nil && len(watcher.WatchList()) == 0 && watcher.Add(dir) == nil {
			changed() // before it was watched
		}
		select {
		case <-ctx.Done():
			return
		case _, open := <-watcher.Events:
			if !open {
				return
			}
		case err := <-watcher.Errors: // such as lost notifications
			log.V(1).Info("inotify", "folder", dir, "error", err)
		case <-tick.C:
		}
		changed()
	}
}
