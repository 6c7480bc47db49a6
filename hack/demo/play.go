package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/goleak"

	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
)

// play runs the demo from nothing to nothing.
func play(ctx context.Context, bound time.Duration, logPath string) (err error) {
	start := time.Now()
	root, err := localcluster.ModuleRoot()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rdma-multicast-demo-")
	if err != nil {
		return err
	}
	if logPath == "" {
		logPath = filepath.Join(dir, "log")
	}
	log, err := openLog(logPath)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		err = errors.Join(err, log.Close())
		if err != nil && ctx.Err() == nil {
			fmt.Printf("\nThe log of every part: %s\n", logPath)
			if filepath.Dir(logPath) == dir {
				return
			}
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()

	d := &demo{root: root, kubeconfig: filepath.Join(dir, "kubeconfig"), out: os.Stdout, bound: bound}
	fmt.Println("rdma-multicast: one cluster on this machine. The control plane is real, the RDMA network is simulated.")
	if err := d.play(ctx, d.steps(log)); err != nil {
		var stopErr error
		if d.cluster != nil {
			stopErr = d.cluster.Stop()
		}
		if ctx.Err() != nil && stopErr == nil {
			return errInterrupted
		}
		return errors.Join(err, stopErr)
	}
	fmt.Printf("\nEach step was seen in the API and in the fabric's own tables. %.0f s.\n", time.Since(start).Seconds())
	return nil
}

// steps of the whole demo.
func (d *demo) steps(log *logFile) []step {
	before := goleak.IgnoreCurrent()
	steps := []step{{"start", "etcd, kube-apiserver, the controller, four nodes with an agent each", func(ctx context.Context) error {
		return d.start(ctx, log)
	}}}
	steps = append(steps, d.scenario()...)
	return append(steps, step{"stop", "the agents, the controller and the control plane end", func(ctx context.Context) error {
		return d.stop(ctx, before)
	}})
}

func (d *demo) start(ctx context.Context, log *logFile) error {
	var err error
	d.cluster, err = localcluster.Start(ctx, localcluster.Options{
		ControlPlane: localcluster.ControlPlaneOptions{Root: d.root, Log: log, Progress: d.out},
		Nodes:        roceNodes + infiniBandNodes,
		InfiniBand:   infiniBandNodes,
		Log:          log.logger(),
	})
	if err != nil {
		return err
	}
	if err := d.cluster.WriteKubeconfig(d.kubeconfig); err != nil {
		return err
	}
	err = d.eventually(ctx, "each agent has reported its node's RDMA device", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		for _, node := range d.cluster.Nodes {
			if len(v.nodes[node.Name].Status.Devices) == 0 {
				return fmt.Errorf("MulticastNode %s has no device", node.Name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return d.kubectl(ctx, "get", "nodes,multicastnodes")
}

// stop ends everything and counts what is left.
func (d *demo) stop(ctx context.Context, before goleak.Option) error {
	if err := d.cluster.Stop(); err != nil {
		return err
	}
	for _, node := range d.cluster.Nodes {
		if files, ids, namespaces := node.Machine.OpenHandles(); files+ids+namespaces > 0 {
			return fmt.Errorf("%s is left with %d files of rdma_cm, %d ids, %d namespaces open", node.Name, files, ids, namespaces)
		}
	}
	d.say("fabric: no file of rdma_cm, no id, no network namespace is open")
	// controller-runtime's cache puts this goroutine of apimachinery between a
	// watch and its reader where only metadata is watched: stopped while it hands
	// on an event, it waits for ever.
	abandonedWatch := goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop")
	err := d.eventually(ctx, "no goroutine is left", func(context.Context) error {
		return goleak.Find(before, abandonedWatch)
	})
	if err != nil {
		return err
	}
	d.say("process: no goroutine is left")
	return nil
}
