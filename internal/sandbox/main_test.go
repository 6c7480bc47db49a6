package sandbox

import (
	"context"
	"os"
	"testing"

	nrilog "github.com/containerd/nri/pkg/log"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	nrilog.Set(quiet{}) // the runtime's side of NRI logs each connection
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(context.Context, string, ...any) {}
