package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// nodesInterval is the time between two looks at the names in /dev/infiniband:
// of a module's node the kernel's notifications of devices don't tell.
const nodesInterval = time.Second

// minLook is the time between two looks that changes cause. A node that starts
// pods has many of interfaces.
const minLook = 200 * time.Millisecond

// Run advertises devices until ctx ends. When it returns there is nothing left
// of it: no socket, no call of the gate under way. What was allocated stays as
// it is. The error is about folders that the plugin can't work without.
func (p *Plugin) Run(ctx context.Context) error {
	if err := os.MkdirAll(p.options.StateDir, 0o700); err != nil {
		return fmt.Errorf("device plugin: folder of allocations: %w: it has to be the host's, mounted at the same path", err)
	}
	var err error
	if p.moved, err = openMoved(filepath.Join(p.options.StateDir, "interfaces.json")); err != nil {
		p.options.Log.Error(err, "interfaces seen before aren't known")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer p.run.Wait()
	defer cancel()
	p.run.Go(func() {
		if err := removeStaleSockets(ctx, p.kubelet.path); err != nil {
			p.options.Log.Error(err, "sockets of an agent that was killed stay")
		}
	})

	var configs chan loaded
	if p.options.ConfigFile == "" {
		p.take(loaded{config: Default()})
	} else {
		file := &configFile{path: p.options.ConfigFile, log: p.options.Log}
		first, _ := file.load()
		p.take(first)
		configs = make(chan loaded)
		p.run.Go(func() { file.run(ctx, configs) })
	}
	p.run.Go(func() { p.kubelet.run(ctx) })
	p.follow(ctx, configs)
	return nil
}

// follow looks at the devices whenever something may have changed.
func (p *Plugin) follow(ctx context.Context, configs <-chan loaded) {
	w := &deviceWatch{plugin: p}
	defer w.close()
	nodes := time.NewTicker(nodesInterval)
	defer nodes.Stop()
	for {
		w.open()
		p.refresh(ctx)
		last := time.Now()
		for wait := true; wait; {
			select {
			case <-ctx.Done():
				return
			case _, open := <-w.changed():
				if !open {
					w.close() // the next look, in a second, opens it again
				} else {
					wait = !pause(ctx, minLook-time.Since(last))
				}
			case next := <-configs:
				wait = !p.take(next)
			case <-nodes.C:
				wait = w.isOpen() && !p.nodesChanged() && !p.due(last)
			}
		}
	}
}

// due tells whether it is time for another look.
func (p *Plugin) due(last time.Time) bool {
	interval := time.Duration(DefaultUpdateInterval) * time.Second
	if p.config != nil {
		interval = p.config.interval()
	}
	return interval > 0 && time.Since(last) >= interval
}

// take brings a configuration into force, unless it has an error or sends a
// device to several resources: then the one before stays.
func (p *Plugin) take(next loaded) bool {
	p.refused = nil
	if next.err == nil && p.config != nil {
		if next.err = p.conflicts(next.config); next.err != nil {
			p.refused = next.config
		}
	}
	if next.err != nil {
		p.options.Log.Error(next.err, "the configuration isn't taken", "anotherInForce", p.config != nil)
		p.options.OnConfig(next.err)
		return false
	}
	p.config = next.config
	p.options.Log.Info("configuration in force", "resources", len(p.config.ConfigList))
	p.options.OnConfig(nil)
	return true
}

// conflicts are a configuration's with the devices of the last look.
func (p *Plugin) conflicts(config *Config) error {
	_, conflicts := assign(config, p.devices)
	var errs []error
	for _, c := range conflicts {
		errs = append(errs, fmt.Errorf("configuration file %s: %w", p.options.ConfigFile, c))
	}
	return errors.Join(errs...)
}

// refresh looks at the devices and serves the resources made of them.
func (p *Plugin) refresh(ctx context.Context) {
	var problems []Problem
	if err := p.look(); err != nil {
		problems = append(problems, Problem{Message: err.Error() + ": the devices known before are still served"})
	}
	if p.refused != nil && p.conflicts(p.refused) == nil {
		p.take(loaded{config: p.refused})
	}
	config := p.config
	if config == nil {
		config = &Config{} // of a file with errors from the start: the gate alone
	}
	assigned, conflicts := assign(config, p.devices)
	for _, c := range conflicts {
		problems = append(problems, Problem{Device: c.Device, Message: c.message()})
	}
	cdi := map[string]bool{}
	resources := map[string]*snapshot{GateResource: gateSnapshot()}
	for i := range config.ConfigList {
		r := &config.ConfigList[i]
		devices, more := resourceDevices(r, assigned[i], p.nodeExists)
		problems = append(problems, more...)
		if r.CDI {
			cdi[cdiFile(r.Name())] = true
		}
		next, problem := p.publish(r, devices)
		if problem != "" {
			problems = append(problems, Problem{Resource: r.Name(), Message: problem})
		}
		resources[r.Name()] = next
	}
	p.retire(func(resource string) bool { return resources[resource] != nil })
	for resource, s := range resources {
		p.serve(ctx, resource, s)
	}
	if err := removeCDI(p.options.CDIDir, func(file string) bool { return cdi[file] }); err != nil {
		problems = append(problems, Problem{Message: err.Error()})
	}
	p.tell(problems)
}

// publish makes a snapshot, with the CDI file that its names are in.
func (p *Plugin) publish(r *Resource, devices []device) (*snapshot, string) {
	var shared []string
	if r.ExposeRDMACM {
		shared = []string{rdmaCM}
	}
	s := newSnapshot(devices, shared, r.CDI)
	if !r.CDI {
		return s, ""
	}
	err := writeCDI(p.options.CDIDir, r.Name(), s)
	if err == nil {
		return s, ""
	}
	for i := range devices {
		if devices[i].unhealthy == "" {
			devices[i].unhealthy = "no CDI file"
		}
	}
	return newSnapshot(devices, shared, true), fmt.Sprintf("cdi: %v: make the folder writable, or set cdi to false", err)
}

// look lists the devices.
func (p *Plugin) look() error {
	p.lookedAt = p.nodes()
	devices, err := p.options.Host.Devices(p.options.NetNS)
	if err != nil {
		return err
	}
	if err := p.moved.update(devices); err != nil {
		p.options.Log.Error(err, "after a restart the interfaces that are in pods by then won't be known")
	}
	umads := p.sysfs.umads()
	p.devices = make([]hostDevice, 0, len(devices))
	for _, d := range devices {
		p.devices = append(p.devices, hostDevice{
			Device: d, pci: p.sysfs.pci(d.Name), interfaces: p.moved.interfaces(&d), umads: umads[d.Name],
		})
	}
	return nil
}

// nodes are the names in /dev/infiniband, in order.
func (p *Plugin) nodes() []string {
	entries, err := os.ReadDir(p.options.DevDir)
	if err != nil {
		return nil // not there before a driver is
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (p *Plugin) nodesChanged() bool { return !slices.Equal(p.nodes(), p.lookedAt) }

func (p *Plugin) nodeExists(node string) bool { return slices.Contains(p.lookedAt, node) }

// tell passes problems on when they have changed.
func (p *Plugin) tell(problems []Problem) {
	if p.told && slices.Equal(problems, p.problems) {
		return
	}
	for _, problem := range problems {
		if !slices.Contains(p.problems, problem) {
			p.options.Log.Info("devices can't be handed out", "problem", problem.String())
		}
	}
	p.told, p.problems = true, problems
	p.options.OnProblems(slices.Clone(problems))
}

// deviceWatch is a watch on the devices that is started again when it ends.
type deviceWatch struct {
	plugin *Plugin
	watch  *rdma.Watch
	failed bool
}

func (w *deviceWatch) open() {
	if w.watch != nil {
		return
	}
	watch, err := w.plugin.options.Host.WatchInterfaces(w.plugin.options.NetNS)
	if err != nil {
		if !w.failed {
			w.plugin.options.Log.Error(err, "changes of devices are looked for every second")
		}
		w.failed = true
		return
	}
	w.watch, w.failed = watch, false
}

// changed is nil while there is no watch.
func (w *deviceWatch) changed() <-chan struct{} {
	if w.watch == nil {
		return nil
	}
	return w.watch.Changed()
}

func (w *deviceWatch) isOpen() bool { return w.watch != nil }

func (w *deviceWatch) close() {
	if w.watch == nil {
		return
	}
	if err := errors.Join(w.watch.Err(), w.watch.Close()); err != nil {
		w.plugin.options.Log.Error(err, "the watch on devices has ended")
	}
	w.watch = nil
}
