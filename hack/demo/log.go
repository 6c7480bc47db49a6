package main

import (
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// logFile takes what every part of the cluster logs, and what etcd and
// kube-apiserver print.
type logFile struct {
	mu   sync.Mutex
	file *os.File
}

// openLog makes the file, and it the process's log.
func openLog(path string) (*logFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	l := &logFile{file: file}
	ctrl.SetLogger(l.logger())
	klog.SetLogger(l.logger())
	logrus.SetOutput(l) // NRI's
	return l, nil
}

func (l *logFile) logger() logr.Logger {
	return logr.FromSlogHandler(slog.NewTextHandler(l, nil))
}

// Write may be called from anywhere; after Close it writes nowhere.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return len(p), nil
	}
	return l.file.Write(p)
}

func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	file := l.file
	l.file = nil
	return file.Close()
}
