package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// Options say what a Plugin works with. Host and Gate are needed; the zero value
// of each of the others is the default named.
type Options struct {
	// Host has the RDMA devices; interfaces are those of NetNS, which is the
	// node's own network namespace (nil: the calling process's).
	Host  *rdma.Host
	NetNS *rdma.NetNS
	// Gate is asked before each start of a container.
	Gate Gate
	// PreStartTimeout is the most that one question to the gate takes; default
	// 25 s. kubelet gives it 30 s.
	PreStartTimeout time.Duration
	// ConfigFile is the configuration; without it, or if there is no such file,
	// it is Default.
	ConfigFile string
	// KubeletRoot is kubelet's root directory; default /var/lib/kubelet.
	KubeletRoot string
	// StateDir has the allocations' directories; default
	// /run/rdma-multicast/allocations. kubelet mounts them into containers: the
	// path has to be the host's, and a tmpfs, since device IDs are given out anew
	// after a boot.
	StateDir string
	// CDIDir is the runtime's folder of CDI files; default /var/run/cdi.
	CDIDir string
	// Sysfs is the folder /sys.
	Sysfs fs.FS
	// DevDir is where the nodes of /dev/infiniband are looked for; default
	// /dev/infiniband.
	DevDir string
	// Log tells of transitions.
	Log logr.Logger
	// OnConfig is called with the error of a configuration that isn't taken, the
	// one before staying in force, and with nil when one has come into force.
	OnConfig func(error)
	// OnProblems is called with all that keeps devices from being handed out
	// whenever that has changed, none included. Both are called one at a time,
	// and must return soon.
	OnProblems func([]Problem)
}

// Plugin advertises RDMA devices to kubelet.
type Plugin struct {
	options     Options
	sysfs       sysfs
	directories *directories
	kubelet     *kubeletDir
	// streamTimeout is the registrations'.
	streamTimeout time.Duration

	mu      sync.Mutex
	serving map[string]*serving

	// Only Run's goroutine has these.
	moved    *moved
	config   *Config // nil: none has come into force
	refused  *Config // for its conflicts, which may end
	devices  []hostDevice
	lookedAt []string // nodes of DevDir
	problems []Problem
	told     bool
	run      sync.WaitGroup
}

// serving is a server and its registration.
type serving struct {
	*server
	registration *registration
	stop         context.CancelFunc
	stopped      chan struct{}
}

// ResourceStatus is what becomes of a resource.
type ResourceStatus struct {
	Name string
	// Registered: kubelet has taken the registration.
	Registered bool
	// Err is why kubelet hasn't; nil also before the first attempt.
	Err error
	// Slots and Healthy count device IDs: all, and those that can be handed out.
	Slots, Healthy int
}

// New makes a Plugin, which does nothing until Run is called, once.
func New(o Options) (*Plugin, error) {
	if o.Host == nil || o.Gate == nil {
		return nil, errors.New("device plugin: it takes a Host and a Gate")
	}
	defaults := []struct {
		of    *string
		value string
	}{
		{&o.KubeletRoot, "/var/lib/kubelet"},
		{&o.StateDir, "/run/rdma-multicast/allocations"},
		{&o.CDIDir, "/var/run/cdi"},
		{&o.DevDir, "/dev/infiniband"},
	}
	for _, d := range defaults {
		if *d.of == "" {
			*d.of = d.value
		}
		if !filepath.IsAbs(*d.of) {
			return nil, fmt.Errorf("device plugin: folder %q: give an absolute path", *d.of)
		}
	}
	if o.PreStartTimeout <= 0 {
		o.PreStartTimeout = 25 * time.Second
	}
	if most := pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second; o.PreStartTimeout > most {
		return nil, fmt.Errorf("device plugin: a start may wait %v at most, kubelet's own bound: not %v", most, o.PreStartTimeout)
	}
	if o.Sysfs == nil {
		o.Sysfs = os.DirFS("/sys")
	}
	if o.OnConfig == nil {
		o.OnConfig = func(error) {}
	}
	if o.OnProblems == nil {
		o.OnProblems = func([]Problem) {}
	}
	return &Plugin{
		options:     o,
		sysfs:       sysfs{o.Sysfs},
		directories: &directories{root: o.StateDir},
		kubelet:     newKubeletDir(o.KubeletRoot, o.Log),
		serving:     map[string]*serving{},

		streamTimeout: defaultStreamTimeout,
	}, nil
}

// AllocationDir is where the directory of some slots of a resource is on the
// host: what Allocation.Dir has, for those that pod-resources tells.
func (p *Plugin) AllocationDir(resource string, deviceIDs []string) string {
	return p.directories.path(resource, deviceIDs)
}

// RetainAllocations removes the directories of allocations that have ended:
// those that keep doesn't want and that haven't changed for age, which has to be
// longer than what keep goes by is old.
func (p *Plugin) RetainAllocations(age time.Duration, keep func(dir string) bool) error {
	return p.directories.retain(age, keep)
}

// Resources lists the resources by name.
func (p *Plugin) Resources() []ResourceStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []ResourceStatus
	for name, s := range p.serving {
		state := s.registration.status()
		snapshot, _ := s.snapshot()
		status := ResourceStatus{Name: name, Registered: state.registered, Err: state.err, Slots: len(snapshot.list)}
		for _, d := range snapshot.devices {
			if d.unhealthy == "" {
				status.Healthy += len(d.slots)
			}
		}
		out = append(out, status)
	}
	slices.SortFunc(out, func(a, b ResourceStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// serve gives a resource a snapshot, and starts serving it if it is new.
func (p *Plugin) serve(ctx context.Context, resource string, next *snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.serving[resource]; ok {
		s.update(next)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	s := &serving{server: newServer(resource, &p.options, p.directories, next), stop: stop, stopped: make(chan struct{})}
	s.registration = &registration{server: s.server, dir: p.kubelet, log: p.options.Log, streamTimeout: p.streamTimeout}
	p.serving[resource] = s
	p.run.Add(1)
	go func() {
		defer p.run.Done()
		defer close(s.stopped)
		s.registration.run(ctx)
	}()
}

// retire ends what isn't a resource any more.
func (p *Plugin) retire(keep func(resource string) bool) {
	p.mu.Lock()
	var ended []*serving
	for name, s := range p.serving {
		if !keep(name) {
			delete(p.serving, name)
			ended = append(ended, s)
		}
	}
	p.mu.Unlock()
	for _, s := range ended {
		s.stop()
	}
	for _, s := range ended {
		<-s.stopped
	}
}
