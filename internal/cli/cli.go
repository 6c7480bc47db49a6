// Package cli is what the programs' command lines have in common: the flags for
// the API server, the HTTP addresses and the log, --version, and how a program
// ends. Flags that are wrong are named, all of them at once.
//
//	func main() { cli.Main("agent", run) }
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Main runs a program until it ends by itself or by a signal, and exits with 1
// where run fails. --help and --version are no failures.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) && !errors.Is(err, ErrVersion) {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// ErrVersion says that the version was asked for and has been printed.
var ErrVersion = errors.New("--version was given")

// Flags are those that every program has.
type Flags struct {
	Kubeconfig     string
	HealthAddress  string
	MetricsAddress string
	LogFormat      string
	Verbosity      int
}

// Parse parses a command line: the flags of all programs and those that register
// adds. Help is written to stderr, the version to stdout.
//
// Errors: flag.ErrHelp, ErrVersion, or what is wrong with the arguments.
func (c *Flags) Parse(name string, args []string, stdout, stderr io.Writer, register func(*flag.FlagSet)) error {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "`file` that says how the API server is reached; empty: the pod's service account")
	f.StringVar(&c.HealthAddress, "health-address", ":8081", "`host:port` of /healthz and /readyz; 0: off")
	f.StringVar(&c.MetricsAddress, "metrics-address", ":8080", "`host:port` of /metrics; 0: off")
	f.StringVar(&c.LogFormat, "log-format", "text", "`format` of the log: text or json")
	f.IntVar(&c.Verbosity, "v", 0, "`level` of detail of the log, from 0")
	version := f.Bool("version", false, "print the version and end")
	register(f)
	switch err := f.Parse(args); {
	case err != nil:
		return err
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: all options are flags, see --help", f.Arg(0))
	case *version:
		if _, err := fmt.Fprintln(stdout, name, Version()); err != nil {
			return fmt.Errorf("printing the version: %w", err)
		}
		return ErrVersion
	}
	return nil
}

// Wrong gathers what is wrong with flags. The zero value is ready for use.
type Wrong struct{ errs []error }

// Flag says what is wrong with the value of one.
func (w *Wrong) Flag(name, format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf("--%s: "+format, append([]any{name}, args...)...))
}

// Err is nil if nothing is wrong.
func (w *Wrong) Err() error { return errors.Join(w.errs...) }

// Validate says which of the values are wrong.
func (c *Flags) Validate(w *Wrong) {
	for _, a := range []struct{ flag, value string }{{"health-address", c.HealthAddress}, {"metrics-address", c.MetricsAddress}} {
		if a.value == "" || a.value == "0" {
			continue
		}
		if _, _, err := net.SplitHostPort(a.value); err != nil {
			w.Flag(a.flag, "%w", err)
		}
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		w.Flag("log-format", "%q is neither text nor json", c.LogFormat)
	}
	if c.Verbosity < 0 {
		w.Flag("v", "%d: can't be negative", c.Verbosity)
	}
}

// RESTConfig says how the API server is reached.
func (c *Flags) RESTConfig() (*rest.Config, error) {
	if c.Kubeconfig == "" {
		r, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: not given, and this isn't a pod with a service account: %w", err)
		}
		return r, nil
	}
	r, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return r, nil
}

// SetLog makes the program's log, and has the libraries write to it.
func (c *Flags) SetLog(stderr io.Writer) logr.Logger {
	log := c.logger(stderr)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return log
}

func (c *Flags) logger(w io.Writer) logr.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(-c.Verbosity)}
	if c.LogFormat == "json" {
		return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewTextHandler(w, options))
}

// Version is the module's version, the commit where it was built from one, and
// Go's version.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return version(info)
}

func version(info *debug.BuildInfo) string {
	parts := []string{info.Main.Version}
	if parts[0] == "" {
		parts[0] = "(devel)"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		if settings["vcs.modified"] == "true" {
			revision += ", modified"
		}
		parts = append(parts, "commit "+revision)
	}
	return strings.Join(append(parts, info.GoVersion), ", ")
}
