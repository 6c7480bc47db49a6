// Package sandbox follows pods' sandboxes through NRI and CRI. CONTRACT.
package sandbox

import "context"

// Sandbox is a live (ready) pod sandbox.
type Sandbox struct {
	ID                            string
	PodUID, PodNamespace, PodName string
	NetNS                         string // path; "" host network
	Annotations                   map[string]string
}

// Tracker is the one authority on which sandboxes live. NRI events and the CRI poll both feed it.
type Tracker struct{ _ int }

type Options struct {
	CRIEndpoint string // unix:///run/containerd/containerd.sock; "" none
	NRISocket   string // "" NRI off
	// Stopping is called when a sandbox is about to stop (NRI: before its network goes; must return within 500 ms) or was seen stopped.
	Stopping func(ctx context.Context, sandboxID string)
	// Changed is called after the set of sandboxes changed.
	Changed func()
}

func NewTracker(Options) *Tracker { panic("contract") }

func (t *Tracker) Run(ctx context.Context) error { panic("contract") }

// Sandboxes is the live set; synced is false until a full list was had once.
func (t *Tracker) Sandboxes() (live []Sandbox, synced bool) { panic("contract") }
