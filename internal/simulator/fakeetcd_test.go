package simulator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// A fakeEtcd is an etcd service without etcd, for stories in which etcd only has to be there: it has data once it was
// bootstrapped, and is then healthy at once.
type fakeEtcd struct {
	etcdService // the calls that no such story makes
	s           *system

	mu      sync.Mutex
	running bool
	waiting bool
	left    int
}

func useFakeEtcd(f *Fleet) {
	f.newEtcd = func(s *system) (etcdService, error) { return &fakeEtcd{s: s}, nil }
}

func (e *fakeEtcd) dir() string { return filepath.Join(e.s.m.disks.etcdDir(), "member") }

func (e *fakeEtcd) Start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err := os.Stat(e.dir())
	e.running, e.waiting = err == nil, err != nil
}

func (e *fakeEtcd) Stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.waiting = false, false
}

func (e *fakeEtcd) Bootstrap(bool, bool) error {
	if err := os.MkdirAll(e.dir(), 0o700); err != nil {
		return err
	}
	e.Start()
	e.s.kick()
	return nil
}

func (e *fakeEtcd) Leave(context.Context) error {
	if e.s.m.faults.has(FaultEtcdLeaveFails) {
		return errors.New("etcdserver: unhealthy cluster")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left++
	e.running = false
	return os.RemoveAll(e.s.m.disks.etcdDir())
}

func (e *fakeEtcd) state() etcdState {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.running:
		return etcdState{State: svcRunning, Known: true, Healthy: true, MemberID: 0xabc}
	case e.waiting:
		return etcdState{State: svcPreparing, LastMessage: "Running pre state"}
	default:
		return etcdState{State: svcFinished, LastMessage: "Service finished successfully"}
	}
}
