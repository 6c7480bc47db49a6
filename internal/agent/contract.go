// Package agent puts the node agent together: the one constructor that
// cmd/agent and the hollow nodes of internal/localcluster share. CONTRACT.
package agent

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"k8s.io/client-go/rest"
)

type Options struct {
	Config                  *rest.Config // to the API server
	NodeName                string
	Namespace               string     // of the agent's Lease
	Host                    *rdma.Host // rdma.Local() or a simulated node's
	Simulated               bool       // said in log, node object
	BootID                  string     // /proc/sys/kernel/random/boot_id
	CRIEndpoint             string
	NRISocket               string // "" off
	HealthAddr, MetricsAddr string // "" or "0" off
	Log                     logr.Logger
	LeaseDuration           time.Duration // default 40 s
}

type Agent struct{ _ int }

func New(Options) (*Agent, error) { panic("contract") }

// Run until ctx ends; then ids are closed (kernel leaves), entries stay.
func (a *Agent) Run(ctx context.Context) error { panic("contract") }
